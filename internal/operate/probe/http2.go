package probe

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// window is the flow-control window of each stream, which is enough for a body of maxBody bytes. The window of the
// connection is at least as large, since it is restored after each response.
const window = maxBody + 1<<16

// http2Conn is a connection of HTTP/2 that carries one request at a time. The client connections of x/net and
// net/http do not report whether the SSP states a limit on streams, or what is wrong with a frame before the
// first request, and they log each frame of an unknown type to standard error.
type http2Conn struct {
	*conn
	framer  *http2.Framer
	streams uint32 // SETTINGS_MAX_CONCURRENT_STREAMS; 0 = none
	next    uint32 // id of the next stream
	goAway  bool
}

// openHTTP2 opens a connection, and reads the SSP's SETTINGS. Over http it is HTTP/2 with prior
// knowledge (RFC 9113, section 3.3).
func (p *prober) openHTTP2(ctx context.Context, address string) (*http2Conn, error) {
	c, err := p.open(ctx, address, func(t *tls.Config) { t.NextProtos = []string{"h2"} })
	if err != nil {
		return nil, err
	}
	if p.target.Scheme == "https" && c.protocol != "h2" {
		c.Close()
		return nil, errors.New("the SSP does not negotiate HTTP/2")
	}
	h := &http2Conn{conn: c, framer: http2.NewFramer(c.Conn, c.in), next: 1}
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	h.framer.MaxHeaderListSize = 64 << 10
	h.framer.SetMaxReadFrameSize(16 << 10) // the limit unless SETTINGS_MAX_FRAME_SIZE raises it
	c.beginExchange()
	_, err = c.Write([]byte(http2.ClientPreface))
	if err == nil {
		err = h.framer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	}
	if err == nil {
		err = h.framer.WriteWindowUpdate(0, window)
	}
	if err == nil {
		err = h.settings()
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return h, nil
}

// settings reads the first frame, which must be SETTINGS.
func (h *http2Conn) settings() error {
	f, err := h.framer.ReadFrame()
	if err != nil {
		return fmt.Errorf("no SETTINGS: %w", err)
	}
	s, ok := f.(*http2.SettingsFrame)
	if !ok || s.IsAck() {
		return fmt.Errorf("the first frame is %v and not SETTINGS", f.Header().Type)
	}
	if n, ok := s.Value(http2.SettingMaxConcurrentStreams); ok {
		h.streams = n
	}
	return h.framer.WriteSettingsAck()
}

func (h *http2Conn) exchange(body []byte) (*response, error) {
	if h.goAway {
		return nil, errCloses
	}
	if err := h.p.budget.take(); err != nil {
		return nil, err
	}
	start := h.beginExchange()
	id := h.next
	h.next += 2
	if err := h.send(id, body); err != nil {
		return nil, err
	}
	r := new(response)
	for done := false; !done; {
		f, err := h.framer.ReadFrame()
		if err != nil {
			return nil, err
		}
		done, err = h.handle(f, id, r)
		if err != nil {
			return nil, err
		}
	}
	r.took, r.closes = time.Since(start), h.goAway
	if n := len(r.body); n > 0 {
		if err := h.framer.WriteWindowUpdate(0, uint32(n)); err != nil {
			return nil, err
		}
	}
	r.decode()
	return r, nil
}

func (h *http2Conn) send(id uint32, body []byte) error {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	fields := []hpack.HeaderField{
		{Name: ":method", Value: method}, {Name: ":scheme", Value: h.p.target.Scheme},
		{Name: ":authority", Value: h.p.target.Host}, {Name: ":path", Value: h.p.target.RequestURI()},
		{Name: "user-agent", Value: userAgent}, {Name: "accept-encoding", Value: "gzip"},
	}
	if body != nil {
		fields = append(fields, hpack.HeaderField{Name: "content-type", Value: "application/json"}, hpack.HeaderField{Name: "content-length", Value: strconv.Itoa(len(body))})
	}
	for _, f := range fields {
		if err := enc.WriteField(f); err != nil {
			return err
		}
	}
	err := h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: len(body) == 0})
	for len(body) > 0 && err == nil {
		n := min(len(body), 16<<10)
		err = h.framer.WriteData(id, n == len(body), body[:n])
		body = body[n:]
	}
	return err
}

// handle handles a frame. done is true at the end of the stream.
func (h *http2Conn) handle(f http2.Frame, id uint32, r *response) (done bool, err error) {
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		if f.StreamID != id {
			return false, nil
		}
		if status := f.PseudoValue("status"); status != "" {
			r.status, _ = strconv.Atoi(status)
		}
		for _, field := range f.RegularFields() {
			if field.Name == "content-encoding" {
				r.coding = field.Value
			}
		}
		return f.StreamEnded(), nil
	case *http2.DataFrame:
		if f.StreamID != id {
			return false, nil
		}
		r.body = append(r.body, f.Data()...)
		if len(r.body) > maxBody {
			return false, fmt.Errorf("the body has more than %d bytes", maxBody)
		}
		return f.StreamEnded(), nil
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return false, h.framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return false, h.framer.WritePing(true, f.Data)
		}
	case *http2.GoAwayFrame:
		h.goAway = true
		if f.LastStreamID < id {
			return false, fmt.Errorf("%w: GOAWAY: %v", errCloses, f.ErrCode)
		}
	case *http2.RSTStreamFrame:
		if f.StreamID == id {
			return false, fmt.Errorf("the stream was reset: %v", f.ErrCode)
		}
	}
	return false, nil
}

// idleFor returns how long the connection is idle until the SSP closes it or sends GOAWAY. It returns 0 if the SSP
// does neither within limit.
func (h *http2Conn) idleFor(limit time.Duration) time.Duration {
	start := h.beginExchange()
	h.SetDeadline(start.Add(limit))
	for {
		f, err := h.framer.ReadFrame()
		took := time.Since(start)
		switch {
		case took >= limit || isTimeout(err):
			return 0
		case err != nil:
			return took
		}
		if _, err := h.handle(f, 0, new(response)); err != nil || h.goAway {
			return took
		}
	}
}
