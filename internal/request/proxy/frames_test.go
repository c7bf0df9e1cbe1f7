package proxy_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frames is an HTTP/2 client that sends any frames, also forbidden ones.
type frames struct {
	t      *testing.T
	conn   *tls.Conn
	framer *http2.Framer
	block  bytes.Buffer
	hpack  *hpack.Encoder
}

func (m *modeProxy) frames(t *testing.T, settings ...http2.Setting) *frames {
	t.Helper()
	f := &frames{t: t, conn: m.dialTLS("h2")}
	testsupport.MustEqual(t, f.conn.ConnectionState().NegotiatedProtocol, "h2", "ALPN: %q")
	f.framer = http2.NewFramer(f.conn, f.conn)
	f.framer.AllowIllegalWrites = true
	f.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.hpack = hpack.NewEncoder(&f.block)
	io.WriteString(f.conn, http2.ClientPreface)
	f.framer.WriteSettings(settings...)
	return f
}

// request opens a stream. fields are name, value, name, value; the first ones
// may be pseudo-fields. A method, scheme, authority and path that are not among
// them are added.
func (f *frames) request(id uint32, end bool, fields ...string) {
	f.t.Helper()
	f.block.Reset()
	given := strings.Join(fields, "\x00")
	for _, d := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "adbuffer.test"}, {":path", "/fill"}} {
		if !strings.Contains(given, d[0]) {
			fields = append([]string{d[0], d[1]}, fields...)
		}
	}
	for i := 0; i < len(fields); i += 2 {
		if fields[i+1] != "absent" {
			f.hpack.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
		}
	}
	block := f.block.Bytes()
	first := block[:min(len(block), 16<<10)]
	f.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndStream: end, EndHeaders: len(first) == len(block)})
	for block = block[len(first):]; len(block) > 0; {
		n := min(len(block), 16<<10)
		f.framer.WriteContinuation(id, n == len(block), block[:n])
		block = block[n:]
	}
}

// awaitReset reads up to a RST_STREAM for which is holds.
func (f *frames) awaitReset(is func(*http2.RSTStreamFrame) bool) *http2.RSTStreamFrame {
	f.t.Helper()
	for {
		frame, err := f.framer.ReadFrame()
		testsupport.NoError(f.t, err)
		if r, ok := frame.(*http2.RSTStreamFrame); ok && is(r) {
			return r
		}
	}
}

// response is the result of a stream.
type response struct {
	status, source string
	body           string
	reset          bool // instead of a response; or GOAWAY, or the end of the connection
}

// responseTo reads until a stream has ended.
func (f *frames) responseTo(id uint32) (a response) {
	f.t.Helper()
	f.conn.SetReadDeadline(time.Now().Add(testsupport.Patience))
	for {
		frame, err := f.framer.ReadFrame()
		if err != nil {
			a.reset = true
			return a
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				f.framer.WriteSettingsAck()
			}
			continue
		case *http2.GoAwayFrame:
			if frame.ErrCode != http2.ErrCodeNo {
				a.reset = true
				return a
			}
		}
		if frame.Header().StreamID != id {
			continue
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			a.status = frame.PseudoValue("status")
			for _, field := range frame.RegularFields() {
				if field.Name == "x-adbuffer-source" {
					a.source = field.Value
				}
			}
			if frame.StreamEnded() {
				return a
			}
		case *http2.DataFrame:
			a.body += string(frame.Data())
			if frame.StreamEnded() {
				return a
			}
		case *http2.RSTStreamFrame:
			if a.status == "" || frame.ErrCode != http2.ErrCodeNo {
				a.reset = true
			}
			return a
		}
	}
}

// want checks the status of the response on a stream.
func (f *frames) want(id uint32, status string) response {
	f.t.Helper()
	a := f.responseTo(id)
	testsupport.MustTrue(f.t, a.status == status, "stream %d: %+v, want %s", id, a, status)
	return a
}
