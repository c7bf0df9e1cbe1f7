package http2

import (
	"strings"
	"testing"
	"time"

	"adbuffer/internal/http2codec"
	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func TestPrefaceForbidsPushAndOpensWindows(t *testing.T) {
	opts := testOptions()
	opts.MaxResponseBytes, opts.MaxResponseHeaderBytes = 1<<20, 12345
	p := dialPeer(t, opts)
	p.readPreface()
	f, ok := p.read().(*h2.SettingsFrame)
	if !ok {
		t.Fatal("SETTINGS is not the first frame")
	}
	for id, want := range map[h2.SettingID]uint32{
		h2.SettingEnablePush: 0, h2.SettingInitialWindowSize: 1 << 20, h2.SettingMaxHeaderListSize: 12345,
	} {
		if got, ok := f.Value(id); !ok || got != want {
			t.Errorf("%v is %d, %t; want %d", id, got, ok, want)
		}
	}
	if f := next[*h2.WindowUpdateFrame](p); f.StreamID != 0 || f.Increment != connWindow-http2codec.InitialWindow {
		t.Errorf("WINDOW_UPDATE %d by %d", f.StreamID, f.Increment)
	}
}

func TestStreamWindowIsNeverSmallerThanTheInitialOne(t *testing.T) {
	for maxBody, want := range map[int]int{0: 65535, 1000: 65535, 1 << 20: 1 << 20, 1 << 30: maxStreamWindow} {
		if got := streamWindow(maxBody); got != want {
			t.Errorf("for bodies of %d: %d, want %d", maxBody, got, want)
		}
	}
}

func TestAtMost100StreamsBeforeThePeersSettings(t *testing.T) {
	for _, c := range []struct{ max, want int }{{0, 100}, {7, 7}, {100, 100}, {5000, 100}} {
		opts := testOptions()
		opts.MaxStreams = c.max
		p := dialPeer(t, opts)
		if got := p.conn.Places(); got != c.want {
			t.Errorf("MaxStreams %d: %d places before settings, want %d", c.max, got, c.want)
		}
		p.conn.Close(upstream.ClosedDrain)
	}
}

func TestPlacesFollowThePeersLimit(t *testing.T) {
	opts := testOptions()
	opts.MaxStreams = 250
	p := connect(t, opts) // no limit
	wantPlaces := func(want int) {
		t.Helper()
		p.owner.awaitChange(t)
		if got := p.conn.Places(); got != want {
			t.Fatalf("%d places, want %d", got, want)
		}
	}
	wantPlaces(250)
	for _, c := range []struct {
		limit uint32
		want  int
	}{{7, 7}, {0, 0}, {200, 200}, {1000, 250}} {
		p.do(p.fr.WriteSettings(h2.Setting{ID: h2.SettingMaxConcurrentStreams, Val: c.limit}))
		wantPlaces(c.want)
	}
	// The same settings again change nothing.
	p.do(p.fr.WriteSettings(h2.Setting{ID: h2.SettingMaxConcurrentStreams, Val: 2000}))
	p.ping()
	if n := p.owner.changes.Load(); n != 5 {
		t.Errorf("the owner was called for %d changes, want 5", n)
	}
	if p.conn.CloseReason() != upstream.NotClosed {
		t.Errorf("closed: %v", p.conn.CloseReason())
	}
}

func TestExchangeOverTheLoweredLimitIsNotSent(t *testing.T) {
	p := connect(t, testOptions(), h2.Setting{ID: h2.SettingMaxConcurrentStreams, Val: 1})
	first := p.start(get("/1"))
	req := p.request()
	get("/2").do(p.conn).wantError(t, want{outcome: upstream.ConnLost, progress: upstream.NotProcessed, detail: "lowered"})
	p.respond(req.StreamID, "one")
	wait(t, first).wantBody(t, "one")
	third := p.start(get("/3"))
	req = p.request()
	if path := req.PseudoValue("path"); path != "/3" {
		t.Errorf("the second request to arrive is %q", path)
	}
	p.respond(req.StreamID, "three")
	wait(t, third).wantBody(t, "three")
	if n := p.owner.freed.Load(); n != 3 {
		t.Errorf("%d places were freed, want 3", n)
	}
}

func TestHeadersAndDataAreSplitToThePeersFrameSize(t *testing.T) {
	p := connect(t, testOptions(), h2.Setting{ID: h2.SettingInitialWindowSize, Val: 1 << 20})
	p.do(p.fr.WriteWindowUpdate(0, 1<<20))
	p.ping()
	p.fr.ReadMetaHeaders = nil // frame by frame
	r := post("/"+strings.Repeat("p", 20000), strings.Repeat("b", 40000))
	r.fields = "X-Long: " + strings.Repeat("f", 20000) + "\r\n"
	done := p.start(r)

	headers := next[*h2.HeadersFrame](p)
	if headers.HeadersEnded() || headers.StreamEnded() || headers.Length != http2codec.MaxFrameSize {
		t.Errorf("HEADERS is %v", headers)
	}
	block := append([]byte(nil), headers.HeaderBlockFragment()...)
	for ended := false; !ended; {
		f := next[*h2.ContinuationFrame](p)
		if f.Length > http2codec.MaxFrameSize {
			t.Errorf("CONTINUATION is %v", f)
		}
		block = append(block, f.HeaderBlockFragment()...)
		ended = f.HeadersEnded()
	}
	fields, err := hpack.NewDecoder(4096, nil).DecodeFull(block)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, f := range fields {
		got[f.Name] = f.Value
	}
	if got[":path"] != r.target || got["x-long"] != strings.Repeat("f", 20000) || got["content-length"] != "40000" {
		t.Error("the header block did not survive the split")
	}
	var body []byte
	for ended := false; !ended; {
		f := next[*h2.DataFrame](p)
		if f.Length > http2codec.MaxFrameSize {
			t.Errorf("DATA is %v", f)
		}
		body = append(body, f.Data()...)
		ended = f.StreamEnded()
	}
	if string(body) != r.body {
		t.Error("the body did not survive the split")
	}
	p.respond(headers.StreamID, "ok")
	wait(t, done).wantBody(t, "ok")
}

func TestLargerFramesAreSentIfThePeerAllowsThem(t *testing.T) {
	p := connect(t, testOptions(), h2.Setting{ID: h2.SettingMaxFrameSize, Val: 1 << 20},
		h2.Setting{ID: h2.SettingInitialWindowSize, Val: 1 << 20})
	p.do(p.fr.WriteWindowUpdate(0, 1<<20))
	p.ping()
	r := post("/", strings.Repeat("b", maxDataFrame+1))
	done := p.start(r)
	if f := next[*h2.DataFrame](p); f.Length != maxDataFrame {
		t.Errorf("the first DATA is %v", f)
	}
	f := next[*h2.DataFrame](p)
	p.respond(f.StreamID, "ok")
	wait(t, done).wantBody(t, "ok")
}

func TestTableSizeOfThePeerIsObeyed(t *testing.T) {
	p := connect(t, testOptions(), h2.Setting{ID: h2.SettingHeaderTableSize, Val: 0})
	// The peer's decoder allows no table. It refuses a block that uses a table, or that does not
	// begin with a table size of 0.
	strict := hpack.NewDecoder(4096, nil)
	p.fr.ReadMetaHeaders = nil
	exchange := func(first bool) {
		t.Helper()
		r := get("/")
		r.fields = "X-Same: always\r\n"
		done := p.start(r)
		f := next[*h2.HeadersFrame](p)
		block := f.HeaderBlockFragment()
		if first != (block[0] == http2codec.TableSize) {
			t.Errorf("block begins with %#x", block[0])
		}
		if first {
			strict.SetAllowedMaxDynamicTableSize(0)
		}
		if _, err := strict.DecodeFull(block); err != nil {
			t.Fatal(err)
		}
		p.respond(f.StreamID, "ok")
		wait(t, done).wantBody(t, "ok")
	}
	exchange(true)
	for range 3 {
		exchange(false)
	}
}

func TestHeaderListOverThePeersLimitIsNotSent(t *testing.T) {
	p := connect(t, testOptions(), h2.Setting{ID: h2.SettingMaxHeaderListSize, Val: 1000})
	r := get("/" + strings.Repeat("x", 1000))
	r.do(p.conn).wantError(t, want{outcome: upstream.TooLarge, progress: upstream.NotSent, detail: "MAX_HEADER_LIST_SIZE"})
	done := p.start(get("/short"))
	p.respond(p.request().StreamID, "ok")
	wait(t, done).wantBody(t, "ok")
}

func TestBadSettingsCloseTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		setting h2.Setting
		code    h2.ErrCode
	}{
		"push":                 {h2.Setting{ID: h2.SettingEnablePush, Val: 1}, h2.ErrCodeProtocol},
		"window over 2^31-1":   {h2.Setting{ID: h2.SettingInitialWindowSize, Val: 1 << 31}, h2.ErrCodeFlowControl},
		"frame size too small": {h2.Setting{ID: h2.SettingMaxFrameSize, Val: 16383}, h2.ErrCodeProtocol},
		"frame size too large": {h2.Setting{ID: h2.SettingMaxFrameSize, Val: 1 << 24}, h2.ErrCodeProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, testOptions())
			done := p.start(get("/"))
			p.request()
			p.do(p.fr.WriteSettings(c.setting))
			p.wantGoAway(c.code)
			wait(t, done).wantError(t, want{outcome: upstream.BadResponse, progress: upstream.MaybeProcessed, demote: true, detail: c.code.String()})
			if p.conn.CloseReason() != upstream.ClosedError || p.conn.Places() != 0 {
				t.Errorf("reason %v, %d places", p.conn.CloseReason(), p.conn.Places())
			}
		})
	}
}

func TestUnknownSettingsAreIgnored(t *testing.T) {
	p := connect(t, testOptions(), h2.Setting{ID: 0x99, Val: 1 << 31}, h2.Setting{ID: h2.SettingEnablePush, Val: 0})
	done := p.start(get("/"))
	p.respond(p.request().StreamID, "ok")
	wait(t, done).wantBody(t, "ok")
}

func settingsPayload(settings ...h2.Setting) (p []byte) {
	for _, s := range settings {
		p = http2codec.AppendSetting(p, s.ID, s.Val)
	}
	return p
}

// openStreams makes n streams without a caller, as many as a large connection
// has.
func (p *peer) openStreams(n int) {
	p.t.Helper()
	p.conn.mu.Lock()
	defer p.conn.mu.Unlock()
	for range n {
		s := p.conn.newStreamLocked()
		s.ex = upstream.AcquireExchange()
		if !p.conn.streams.add(s) {
			p.t.Fatal("no stream number is left")
		}
	}
}

// A frame of 16 KB holds 2730 settings. The cost of a setting must not depend on the number of
// streams.
func TestSettingsCostTheSameWithManyStreams(t *testing.T) {
	var entries []h2.Setting
	for i := range http2codec.MaxFrameSize / 6 {
		entries = append(entries, h2.Setting{ID: h2.SettingInitialWindowSize, Val: uint32(http2codec.InitialWindow + i%2)})
	}
	f := http2codec.Frame{Kind: h2.FrameSettings, Payload: settingsPayload(entries...)}
	cost := func(streams int) time.Duration {
		opts := testOptions()
		opts.MaxStreams = streams
		p := connect(t, opts)
		p.openStreams(streams)
		return testsupport.Shortest(func() {
			if err := p.conn.onSettings(f); err != nil {
				t.Fatal(err)
			}
		})
	}
	few, many := cost(1), cost(maxMaxStreams)
	t.Logf("a frame of %d settings takes %v with one stream and %v with %d", len(entries), few, many, maxMaxStreams)
	if many > 20*few {
		t.Errorf("a frame of %d settings takes %v with %d streams and %v with one", len(entries), many, maxMaxStreams, few)
	}
}

// maxMaxStreams is the highest value of pool.max_streams_per_conn.
const maxMaxStreams = 1 << 14

func TestLastValueOfASettingAppliesAndAllAreChecked(t *testing.T) {
	s, err := http2codec.ParseSettings(settingsPayload(
		h2.Setting{ID: h2.SettingInitialWindowSize, Val: 7}, h2.Setting{ID: h2.SettingHeaderTableSize, Val: 100},
		h2.Setting{ID: 0x99, Val: 1}, h2.Setting{ID: h2.SettingHeaderTableSize, Val: 5},
		h2.Setting{ID: h2.SettingInitialWindowSize, Val: 9}, h2.Setting{ID: h2.SettingHeaderTableSize, Val: 200}))
	if err != nil {
		t.Fatal(err)
	}
	if s.Value[h2.SettingInitialWindowSize] != 9 || s.Value[h2.SettingHeaderTableSize] != 200 || s.SmallestTable != 5 || s.Has[h2.SettingMaxFrameSize] {
		t.Errorf("got %+v", s)
	}
	_, err = http2codec.ParseSettings(settingsPayload(
		h2.Setting{ID: h2.SettingMaxFrameSize, Val: 1}, h2.Setting{ID: h2.SettingMaxFrameSize, Val: http2codec.MaxFrameSize}))
	if err == nil || err.Code != h2.ErrCodeProtocol {
		t.Errorf("a bad value before a good one: %v", err)
	}
	if _, err = http2codec.ParseSettings(make([]byte, 7)); err == nil || err.Code != h2.ErrCodeFrameSize {
		t.Errorf("a frame of 7 bytes: %v", err)
	}
}

// A larger initial window may wake uploads, so it visits all streams. The visits count as flood, as
// frames do.
func TestRepeatedlyGrowingInitialWindowsAreAFlood(t *testing.T) {
	opts := testOptions()
	opts.MaxStreams = 10000
	p := connect(t, opts, h2.Setting{ID: h2.SettingInitialWindowSize, Val: 0})
	done := p.start(post("/", "waits for its window"))
	p.request()
	go func() {
		for i := range uint32(http2codec.FloodBudget) {
			if p.fr.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: i % 2}) != nil {
				return
			}
		}
	}()
	p.wantGoAway(h2.ErrCodeEnhanceYourCalm)
	wait(t, done)
}
