package sspsim

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"adbuffer/internal/test/testsupport"
)

func TestMain(m *testing.M) { testsupport.Main(m) }

// patience bounds every wait of a test. It passes only when a test fails.
const patience = testsupport.Patience

func start(t testing.TB, o Options) *SSP {
	t.Helper()
	s, err := Start(o)
	testsupport.NoError(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func startWith(t testing.TB, b Behaviour) *SSP { return start(t, Options{Behaviour: b}) }

func (s *SSP) mustSet(t testing.TB, b Behaviour) {
	t.Helper()
	testsupport.NoError(t, s.Set(b))
}

func (s *SSP) await(t testing.TB, what string, ok func(Counters) bool) {
	t.Helper()
	if !s.AwaitCounters(patience, ok) {
		t.Fatalf("%s: not seen; counters %+v", what, s.Counters())
	}
}

// rawClient is one connection to an SSP, without a client library.
type rawClient struct {
	t  testing.TB
	c  net.Conn
	br *bufio.Reader
}

func dial(t testing.TB, s *SSP) *rawClient {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr())
	testsupport.NoError(t, err)
	return newRawClient(t, c)
}

func dialTLS(t testing.TB, s *SSP, cfg *tls.Config) *rawClient {
	t.Helper()
	cfg.RootCAs = s.CA().Pool()
	c, err := tls.Dial("tcp", s.Addr(), cfg)
	testsupport.NoError(t, err)
	return newRawClient(t, c)
}

func newRawClient(t testing.TB, c net.Conn) *rawClient {
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return &rawClient{t: t, c: c, br: bufio.NewReader(c)}
}

func (r *rawClient) send(text string) {
	r.t.Helper()
	if _, err := io.WriteString(r.c, text); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rawClient) get(id string) {
	r.t.Helper()
	r.send("GET /bid?cb=" + id + " HTTP/1.1\r\nHost: ssp\r\n\r\n")
}

// response reads one whole response to a request of this method.
func (r *rawClient) response(method string) (*http.Response, string) {
	r.t.Helper()
	resp, err := http.ReadResponse(r.br, &http.Request{Method: method})
	testsupport.MustTrue(r.t, err == nil, "reading a response: %v", err)
	body, err := io.ReadAll(resp.Body)
	testsupport.MustTrue(r.t, err == nil, "reading a body after %q: %v", body, err)
	return resp, string(body)
}

// ask sends a GET, and returns its response.
func (r *rawClient) ask(id string) (*http.Response, string) {
	r.t.Helper()
	r.get(id)
	return r.response("GET")
}

// rest reads until the end of the connection, and returns how it ended: nil for a FIN.
func (r *rawClient) rest() (string, error) {
	b, err := io.ReadAll(r.br)
	return string(b), err
}

func (r *rawClient) wantEnd() {
	r.t.Helper()
	if text, err := r.rest(); text != "" || err != nil {
		r.t.Fatalf("got %q and %v, want the end of the connection", text, err)
	}
}

// wantOpen checks that the connection still responds.
func (r *rawClient) wantOpen() {
	r.t.Helper()
	if _, body := r.ask("still-open"); !strings.Contains(body, "still-open") {
		r.t.Fatalf("%q is not the response to this request", body)
	}
}

// h2Client is one HTTP/2 connection. The test reads and writes its frames.
type h2Client struct {
	*rawClient
	framer *http2.Framer
	block  bytes.Buffer
	enc    *hpack.Encoder
}

// newH2Client sends the preface over r and reads the SSP's first SETTINGS.
func newH2Client(r *rawClient, settings ...http2.Setting) (*h2Client, *http2.SettingsFrame) {
	r.t.Helper()
	h := &h2Client{rawClient: r, framer: http2.NewFramer(r.c, r.br)}
	h.enc = hpack.NewEncoder(&h.block)
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	h.framer.AllowIllegalWrites = true
	h.send(http2.ClientPreface)
	h.must(h.framer.WriteSettings(settings...))
	first, ok := h.frame().(*http2.SettingsFrame)
	testsupport.MustTrue(r.t, ok && !first.IsAck(), "first frame is %v, want SETTINGS", first)
	h.must(h.framer.WriteSettingsAck())
	return h, first
}

func dialH2C(t testing.TB, s *SSP, settings ...http2.Setting) *h2Client {
	t.Helper()
	h, _ := newH2Client(dial(t, s), settings...)
	return h
}

func (h *h2Client) must(err error) {
	h.t.Helper()
	testsupport.NoError(h.t, err)
}

func (h *h2Client) frame() http2.Frame {
	h.t.Helper()
	f, err := h.framer.ReadFrame()
	testsupport.MustTrue(h.t, err == nil, "reading a frame: %v", err)
	return f
}

// wantEnd checks that the connection ends, with acknowledgements as its only frames.
func (h *h2Client) wantEnd() {
	h.t.Helper()
	for {
		f, err := h.framer.ReadFrame()
		if errors.Is(err, io.EOF) {
			return
		}
		testsupport.MustTrue(h.t, err == nil, "connection ended with %v, want a FIN", err)
		switch f.(type) {
		case *http2.SettingsFrame, *http2.PingFrame, *http2.WindowUpdateFrame:
		default:
			h.t.Fatalf("got %v, want the end of the connection", f)
		}
	}
}

// next returns the next frame that is not SETTINGS, PING or WINDOW_UPDATE.
func (h *h2Client) next() http2.Frame {
	h.t.Helper()
	for {
		switch f := h.frame().(type) {
		case *http2.SettingsFrame, *http2.PingFrame, *http2.WindowUpdateFrame:
		default:
			return f
		}
	}
}

// headers opens a stream with these fields, given as name, value, name, value.
func (h *h2Client) headers(id uint32, end bool, fields ...string) {
	h.t.Helper()
	h.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		h.must(h.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	h.must(h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: h.block.Bytes(),
		EndStream: end, EndHeaders: true}))
}

func (h *h2Client) get(id uint32) {
	h.t.Helper()
	h.headers(id, true, ":method", "GET", ":scheme", "http", ":authority", "ssp", ":path", fmt.Sprintf("/bid?cb=s%d", id))
}

func (h *h2Client) post(id uint32, end bool) {
	h.t.Helper()
	h.headers(id, end, ":method", "POST", ":scheme", "http", ":authority", "ssp", ":path", "/bid")
}

// h2Response is a response on one stream.
type h2Response struct {
	status  string
	fields  map[string]string // fields of the header and the trailer
	body    string
	interim []string // statuses
	reset   *http2.ErrCode
}

// response reads frames until stream id has ended. A frame of another stream fails the test.
func (h *h2Client) response(id uint32) h2Response {
	h.t.Helper()
	a := h2Response{fields: map[string]string{}}
	for {
		f := h.next()
		testsupport.MustTrue(h.t, f.Header().StreamID == id, "got %v, want a frame of stream %d", f, id)
		ended := false
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if status := f.PseudoValue("status"); strings.HasPrefix(status, "1") {
				a.interim = append(a.interim, status)
				continue
			} else if status != "" {
				a.status = status
			}
			for _, field := range f.RegularFields() {
				a.fields[field.Name] = field.Value
			}
			ended = f.StreamEnded()
		case *http2.DataFrame:
			a.body += string(f.Data())
			ended = f.StreamEnded()
			if n := f.Length; n > 0 && !ended {
				h.must(h.framer.WriteWindowUpdate(id, n))
			}
			if n := f.Length; n > 0 {
				h.must(h.framer.WriteWindowUpdate(0, n))
			}
		case *http2.RSTStreamFrame:
			a.reset = &f.ErrCode
			ended = true
		default:
			h.t.Fatalf("got %v on stream %d", f, id)
		}
		if ended {
			return a
		}
	}
}

// ask sends a GET on stream id, and returns its response.
func (h *h2Client) ask(id uint32) h2Response {
	h.t.Helper()
	h.get(id)
	return h.response(id)
}
