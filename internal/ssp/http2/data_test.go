package http2

import (
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

func TestBodyMustBeAsLongAsItsContentLength(t *testing.T) {
	for name, c := range map[string]struct {
		length string
		pieces []string
		ok     bool
	}{
		"equal":             {"4", []string{"body"}, true},
		"equal in pieces":   {"4", []string{"bo", "", "dy"}, true},
		"zero":              {"0", []string{""}, true},
		"shorter":           {"5", []string{"body"}, false},
		"longer":            {"3", []string{"body"}, false},
		"longer in pieces":  {"3", []string{"bod", "y"}, false},
		"none though zero":  {"0", []string{"body"}, false},
		"nothing though 4":  {"4", []string{""}, false},
		"no DATA though 4":  {"4", nil, false},
		"beyond all bounds": {"99999999999999999999", []string{"body"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, testOptions())
			done, id := p.begin(get("/"))
			p.head(id, len(c.pieces) == 0, ":status", "200", "content-length", c.length)
			for i, piece := range c.pieces {
				p.data(id, i == len(c.pieces)-1, piece)
			}
			res := wait(t, done)
			switch {
			case c.ok:
				res.wantBody(t, strings.Join(c.pieces, ""))
			case strings.HasPrefix(name, "beyond"):
				res.wantError(t, want{outcome: exchange.ResponseTooLarge, progress: exchange.MaybeProcessed, detail: "max_response_bytes"})
			default:
				res.wantError(t, want{outcome: exchange.BadResponse, progress: exchange.MaybeProcessed, detail: "content-length"})
				p.wantReset(id, h2.ErrCodeProtocol)
			}
			p.afterwards()
		})
	}
}

func TestResponsesWithoutBody(t *testing.T) {
	for name, c := range map[string]struct {
		method exchange.Method
		status string
		length string
		body   string
		want   int // length
		bad    bool
	}{
		"HEAD":                        {exchange.HEAD, "200", "1234", "", 1234, false},
		"HEAD of 3 GB":                {exchange.HEAD, "200", "3000000000", "", 3000000000, false},
		"HEAD without length":         {exchange.HEAD, "200", "", "", -1, false},
		"HEAD with a body":            {exchange.HEAD, "200", "4", "body", 0, true},
		"204":                         {exchange.GET, "204", "", "", -1, false},
		"204 with a length":           {exchange.GET, "204", "4", "", -1, false},
		"HEAD with a 204":             {exchange.HEAD, "204", "4", "", -1, false},
		"204 with a body":             {exchange.GET, "204", "", "body", 0, true},
		"304 with a length":           {exchange.GET, "304", "1234", "", 1234, false},
		"304 with a body":             {exchange.GET, "304", "4", "body", 0, true},
		"POST with an empty response": {exchange.POST, "200", "", "", -1, false},
	} {
		for _, how := range []string{"HEADERS ends the stream", "empty DATA ends the stream"} {
			t.Run(name+", "+how, func(t *testing.T) {
				p := connect(t, testOptions())
				r := get("/")
				r.method = c.method
				done, id := p.begin(r)
				fields := []string{":status", c.status}
				if c.length != "" {
					fields = append(fields, "content-length", c.length)
				}
				ends := how[0] == 'H' && c.body == ""
				p.head(id, ends, fields...)
				if !ends {
					p.data(id, true, c.body)
				}
				res := wait(t, done)
				if c.bad {
					res.wantError(t, want{outcome: exchange.BadResponse, progress: exchange.MaybeProcessed, detail: "body"})
				} else if res.err != nil || res.body != "" || res.length != c.want {
					t.Errorf("got %v, length %d, body %q", res.err, res.length, res.body)
				}
				p.afterwards()
			})
		}
	}
}

func TestDataBeforeTheHeaderIsMalformed(t *testing.T) {
	p := connect(t, testOptions())
	done, id := p.begin(get("/"))
	p.data(id, true, "body")
	wait(t, done).wantError(t, want{outcome: exchange.BadResponse, progress: exchange.MaybeProcessed, demote: true, detail: "DATA"})
	p.wantReset(id, h2.ErrCodeProtocol)
	p.afterwards()
}

func TestBodyOverTheLimitIsReset(t *testing.T) {
	for name, length := range map[string]string{"announced": "1001", "unannounced": ""} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, with(func(o *Options) { o.MaxResponseBytes = 1000 }))
			done, id := p.begin(get("/"))
			fields := []string{":status", "200"}
			if length != "" {
				fields = append(fields, "content-length", length)
			}
			p.head(id, false, fields...)
			if length == "" {
				p.data(id, false, strings.Repeat("x", 1000))
				p.data(id, true, "x")
			}
			wait(t, done).wantError(t, want{outcome: exchange.ResponseTooLarge, progress: exchange.MaybeProcessed, detail: "over 1000 bytes; see max_response_bytes"})
			p.wantReset(id, h2.ErrCodeCancel)

			p.exchange(get("/"), strings.Repeat("x", 1000))
		})
	}
}

func TestBodyIsReservedAndFailsOverTheBudget(t *testing.T) {
	p := connect(t, testOptions())
	r := get("/")
	r.budget = exchange.NewBudget(1000)
	done, id := p.begin(r)
	p.head(id, false, ":status", "200")
	p.data(id, false, strings.Repeat("x", 600))
	p.ping()
	testsupport.Equal(t, r.budget.Used(), 600, "%d bytes are reserved")
	p.data(id, false, strings.Repeat("x", 600))
	res := wait(t, done)
	testsupport.True(t, res.err != nil && exchange.AsError(res.err).Outcome == exchange.Overloaded, "got %v", res.err)
	testsupport.Equal(t, r.budget.Used(), 0, "%d bytes stay reserved")
	p.wantReset(id, h2.ErrCodeCancel)
	p.afterwards()
}

func TestPaddingIsCutAndCounted(t *testing.T) {
	p := connect(t, with(func(o *Options) { o.MaxResponseBytes = 1000 })) // so the stream's window is 65535
	done, id := p.begin(get("/"))
	p.do(p.fr.WriteHeaders(h2.HeadersFrameParam{StreamID: id, BlockFragment: p.encode(":status", "200"), EndHeaders: true, PadLength: 33}))
	// Each frame costs 257 bytes of the window, and carries one byte. Half of a window is returned
	// after 128 frames.
	for range 128 {
		p.do(p.fr.WriteDataPadded(id, false, []byte("p"), make([]byte, 255)))
	}
	f := next[*h2.WindowUpdateFrame](p)
	for f.StreamID == 0 {
		f = next[*h2.WindowUpdateFrame](p)
	}
	testsupport.True(t, f.StreamID == id && f.Increment == 128*257, "WINDOW_UPDATE %d by %d", f.StreamID, f.Increment)
	p.do(p.fr.WriteDataPadded(id, true, []byte("!"), make([]byte, 10)))
	wait(t, done).wantBody(t, strings.Repeat("p", 128)+"!")
	p.conn.mu.Lock()
	defer p.conn.mu.Unlock()
	got, want := connWindow-p.conn.received.Left(), 128*257+12
	testsupport.Equal(t, got, want, "%d bytes of the connection's window are used")
}

func TestWindowIsReturnedForDroppedData(t *testing.T) {
	p := connect(t, with(func(o *Options) { o.PingTimeout = time.Minute }))
	// Enough streams to fill the connection's window twice. Each sends its whole window after its
	// reset.
	const streams = 2 * connWindow / maxStreamWindow
	var ids [streams]uint32
	var done [streams]<-chan result
	for i := range ids {
		done[i] = p.start(get("/").within(50 * time.Millisecond))
	}
	for i := range ids {
		ids[i] = p.requestAfterResets().StreamID
	}
	for _, ch := range done {
		testsupport.MustEqual[error](t, wait(t, ch).err, exchange.ErrDeadline, "got %v")
	}
	piece := strings.Repeat("x", http2codec.MaxFrameSize)
	for _, id := range ids {
		p.head(id, false, ":status", "200")
		for range maxStreamWindow / len(piece) {
			p.data(id, false, piece)
		}
	}
	returned := uint32(0)
	for returned < 2*connWindow {
		if f, ok := p.read().(*h2.WindowUpdateFrame); ok {
			testsupport.MustEqual(t, f.StreamID, 0, "WINDOW_UPDATE for stream %d")
			if f.Increment != connWindow-http2codec.InitialWindow { // the WINDOW_UPDATE at the start
				returned += f.Increment
			}
		}
	}
}

func TestDataForResetStreamsIsBounded(t *testing.T) {
	p := connect(t, with(func(o *Options) { o.MaxResponseBytes = 0 })) // so the stream's window is 65535
	wait(t, p.start(get("/").within(20*time.Millisecond)))
	id := p.request().StreamID
	p.head(id, false, ":status", "200")
	for range 4 {
		p.data(id, false, strings.Repeat("x", http2codec.MaxFrameSize-1))
	}
	p.data(id, false, "the last") // 65540 bytes
	p.wantGoAway(h2.ErrCodeFlowControl)
}

func TestFrameAfterTheEndOfAResponseIsAStreamError(t *testing.T) {
	p := connect(t, testOptions())
	done, id := p.begin(get("/"))
	p.respond(id, "whole")
	wait(t, done).wantBody(t, "whole")
	p.data(id, false, "more")
	p.wantReset(id, h2.ErrCodeStreamClosed)
	p.head(id, true, ":status", "200")
	p.afterwards()
}
