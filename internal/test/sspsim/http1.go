package sspsim

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// http1Conn serves an HTTP/1 connection with one goroutine: it responds to one request after the
// other, in their order. Responses gather in out. They are written when no request waits for a
// response.
type http1Conn struct {
	*conn
	in     requestReader
	out    *bufio.Writer
	reply  reply
	head   []byte // of the response
	served int    // requests that have begun on this connection

	readAt time.Time // when the last bytes arrived; kept with PipelineOverlap
}

func newHTTP1Conn(c *conn) *http1Conn {
	h := &http1Conn{conn: c, out: bufio.NewWriterSize(c.rw, 16<<10)}
	h.in = requestReader{src: bufio.NewReaderSize(h, 16<<10), keep: c.ssp.watching()}
	return h
}

func (h *http1Conn) applyLocked(*script) {}

func (h *http1Conn) retireLocked() { h.closeLocked() }

// Read writes the gathered responses before it waits for more bytes.
func (h *http1Conn) Read(b []byte) (int, error) {
	if err := h.out.Flush(); err != nil {
		return 0, err
	}
	n, err := h.rw.Read(b)
	if h.ssp.plan.Load().Connections.PipelineOverlap {
		h.readAt = time.Now()
	}
	return n, err
}

// serve responds to requests until the SSP or the peer ends the connection.
func (h *http1Conn) serve() {
	h.serveAs(h)
	for {
		if err := h.next(); err != nil {
			if refused := (*badRequest)(nil); errors.As(err, &refused) {
				h.ssp.countBadRequest(err)
				fmt.Fprintf(h.out, "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
					refused.status, http.StatusText(refused.status), len(refused.text), refused.text)
			}
			break
		}
		if !h.respond() {
			break
		}
	}
	if h.out.Flush() == nil {
		h.mu.Lock()
		h.closeLocked()
		h.mu.Unlock()
		h.linger(h.rw)
	}
}

// next reads one whole request.
func (h *http1Conn) next() error {
	if err := h.in.readHead(); err != nil {
		return err
	}
	if h.in.wait100 && h.in.src.Buffered() == 0 {
		h.put("HTTP/1.1 100 Continue\r\n\r\n")
	}
	return h.in.readBody()
}

// respond sends the response to the request just read. It returns false if the connection ends.
func (h *http1Conn) respond() bool {
	s, q := h.ssp, h.in.Request
	p := s.plan.Load()
	h.served++
	f := p.draw(h.rng, false)
	h.mu.Lock()
	if h.closing {
		h.mu.Unlock()
		return false
	}
	f.delay = p.Latency.slowed(f.delay, h.beginLocked())
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.endLocked()
		h.mu.Unlock()
	}()
	if s.watching() {
		_ = h.out.Flush()
		q.Time, q.Conn, q.TLS = time.Now(), h.id, h.tls
		f = s.watch(q, f)
	}
	if f.delay > 0 {
		if p.Connections.PipelineOverlap {
			f.delay -= time.Since(h.readAt)
		}
		if f.delay > 0 && (h.out.Flush() != nil || !s.waitFor(f.delay, nil)) {
			return false
		}
	}
	if f.fault == faultCutBody && q.Method == http.MethodHead {
		f.fault = faultCutHead // the response has no body to cut
	}
	s.countFault(f.fault)
	switch f.fault {
	case faultStall:
		_ = h.out.Flush()
		_, _ = io.Copy(io.Discard, h.rw) // until the peer closes
		return false
	case faultReset:
		_ = h.out.Flush()
		h.reset()
		return false
	}
	p.compose(&h.reply, &f, q)
	return h.writeReply(p, &f)
}
