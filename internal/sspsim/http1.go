package sspsim

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// flushAt is the size of gathered responses at which they are written, even if more pipelined
// requests are waiting.
const flushAt = 64 << 10

// http1Conn serves an HTTP/1 connection with one goroutine: it responds to one request after the
// other, in their order. Responses gather in out. They are written when no request waits for a
// response.
type http1Conn struct {
	*conn
	in     requestReader
	reply  reply
	out    []byte
	served int  // requests that have begun on this connection
	gone   bool // a write failed

	readAt time.Time // when the last bytes arrived; kept with PipelineOverlap
}

func newHTTP1Conn(c *conn) *http1Conn {
	h := &http1Conn{conn: c}
	h.in = requestReader{src: bufio.NewReaderSize(h, 16<<10), maxBody: c.ssp.opts.MaxRequestBody, keep: c.ssp.watching()}
	c.poison = func() {
		h.out = append(h.out, poisonResponse...)
		h.flush()
	}
	return h
}

// Read writes the gathered responses before it waits for more bytes.
func (h *http1Conn) Read(b []byte) (int, error) {
	if !h.flush() {
		return 0, io.ErrClosedPipe
	}
	n, err := h.conn.Read(b)
	if h.plan.Connections.PipelineOverlap {
		h.readAt = time.Now()
	}
	return n, err
}

func (h *http1Conn) flush() bool {
	if len(h.out) > 0 && !h.gone {
		h.gone = !h.write(h.out)
	}
	h.out = h.out[:0]
	return !h.gone
}

// serve responds to requests until the SSP or the peer ends the connection.
func (h *http1Conn) serve() {
	for {
		if err := h.next(); err != nil {
			if refused := (*badRequest)(nil); errors.As(err, &refused) {
				h.ssp.countBadRequest(err)
				h.refuse(refused)
			}
			break
		}
		if !h.respond() {
			break
		}
	}
	if h.flush() && !h.closing.Load() {
		h.closeGracefully()
		h.linger(h.conn)
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

func (h *http1Conn) refuse(e *badRequest) {
	h.out = fmt.Appendf(h.out, "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
		e.status, http.StatusText(e.status), len(e.text), e.text)
}

// respond sends the response to the request just read. It returns false if the connection ends.
func (h *http1Conn) respond() bool {
	s, q := h.ssp, h.in.Request
	p := s.plan.Load()
	h.served++
	f := p.draw(h.rng, false)
	f.delay = p.Latency.slowed(f.delay, h.begin(len(q.Body)))
	defer h.end(p, &f)
	if s.watching() {
		h.flush()
		q.Time, q.Conn, q.TLS = time.Now(), h.id, h.tls
		f = s.watch(q, f)
	}
	if f.delay > 0 {
		if p.Connections.PipelineOverlap {
			f.delay -= time.Since(h.readAt)
		}
		if f.delay > 0 && (!h.flush() || !s.waitFor(f.delay, nil)) {
			return false
		}
	}
	if f.fault == faultCutBody && q.Method == http.MethodHead {
		f.fault = faultCutHead // the response has no body to cut
	}
	if f.fault != faultUnsolicited { // an unsolicited response is counted when it is sent
		s.countFault(f.fault)
	}
	switch f.fault {
	case faultStall:
		h.flush()
		_, _ = io.Copy(io.Discard, h.conn) // until the peer closes
		return false
	case faultReset:
		h.flush()
		h.reset()
		h.gone = true
		return false
	}
	p.compose(&h.reply, &f, q)
	return h.writeReply(p, &f)
}
