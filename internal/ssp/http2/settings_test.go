package http2

import (
	"fmt"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func TestPrefaceForbidsPushAndOpensWindows(t *testing.T) {
	// A stream's window is never smaller than the initial one.
	for maxBody, window := range map[int]uint32{0: 65535, 1000: 65535, 1 << 20: 1 << 20, 1 << 30: maxStreamWindow} {
		p := dialPeer(t, with(func(o *Options) { o.MaxResponseBytes, o.MaxResponseHeaderBytes = maxBody, 12345 }))
		p.readPreface()
		f, ok := p.read().(*h2.SettingsFrame)
		testsupport.MustTrue(t, ok, "SETTINGS is not the first frame")
		for id, want := range map[h2.SettingID]uint32{
			h2.SettingEnablePush: 0, h2.SettingInitialWindowSize: window, h2.SettingMaxHeaderListSize: 12345,
		} {
			got, ok := f.Value(id)
			testsupport.True(t, ok && got == want, "bodies of %d: %v is %d, %t; want %d", maxBody, id, got, ok, want)
		}
		u := next[*h2.WindowUpdateFrame](p)
		testsupport.True(t, u.StreamID == 0 && u.Increment == connWindow-http2codec.InitialWindow, "WINDOW_UPDATE %d by %d", u.StreamID, u.Increment)
	}
}

func TestAtMost100StreamsBeforeThePeersSettings(t *testing.T) {
	for _, c := range []struct{ max, want int }{{0, 100}, {7, 7}, {100, 100}, {5000, 100}} {
		p := dialPeer(t, with(func(o *Options) { o.MaxStreams = c.max }))
		testsupport.Equal(t, p.conn.Places(), c.want, "MaxStreams %[2]d: %[1]d places before settings", c.max)
		p.conn.Close(exchange.ClosedDrain)
	}
}

func TestPlacesFollowThePeersLimit(t *testing.T) {
	opts := testOptions()
	opts.MaxStreams = 250
	p := connect(t, opts) // no limit
	wantPlaces := func(want int) {
		t.Helper()
		p.owner.awaitChange(t)
		testsupport.MustEqual(t, p.conn.Places(), want, "%d places")
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
	testsupport.Equal(t, p.owner.changes.Load(), 5, "the owner was called for %d changes")
	testsupport.Equal(t, p.conn.CloseReason(), exchange.NotClosed, "closed: %v")
}

func TestExchangeOverTheLoweredLimitIsNotSent(t *testing.T) {
	p := connect(t, testOptions(), h2.Setting{ID: h2.SettingMaxConcurrentStreams, Val: 1})
	first := p.start(get("/1"))
	req := p.request()
	get("/2").do(p.conn).wantError(t, want{outcome: exchange.ConnLost, progress: exchange.NotProcessed, detail: "lowered"})
	p.respond(req.StreamID, "one")
	wait(t, first).wantBody(t, "one")
	third := p.start(get("/3"))
	req = p.request()
	testsupport.Equal(t, req.PseudoValue("path"), "/3", "the second request to arrive is %q")
	p.respond(req.StreamID, "three")
	wait(t, third).wantBody(t, "three")
	testsupport.Equal(t, p.owner.freed.Load(), 3, "%d places were freed")
}

func TestHeadersAndDataAreSplitToThePeersFrameSize(t *testing.T) {
	p := connect(t, testOptions(), h2.Setting{ID: h2.SettingInitialWindowSize, Val: 1 << 20})
	p.do(p.fr.WriteWindowUpdate(0, 1<<20))
	p.ping()
	p.fr.ReadMetaHeaders = nil // frame by frame
	r := post("/"+strings.Repeat("p", 20000), strings.Repeat("b", 40000))
	r.fields, r.isolated = "X-Long: "+strings.Repeat("f", 20000)+"\r\n", true
	done := p.start(r)

	headers := next[*h2.HeadersFrame](p)
	testsupport.True(t, !headers.HeadersEnded() && !headers.StreamEnded() && headers.Length == http2codec.MaxFrameSize, "HEADERS is %v", headers)
	block := append([]byte(nil), headers.HeaderBlockFragment()...)
	for ended := false; !ended; {
		f := next[*h2.ContinuationFrame](p)
		testsupport.True(t, f.Length <= http2codec.MaxFrameSize, "CONTINUATION is %v", f)
		block = append(block, f.HeaderBlockFragment()...)
		ended = f.HeadersEnded()
	}
	fields, err := hpack.NewDecoder(4096, nil).DecodeFull(block)
	testsupport.NoError(t, err)
	got := make(map[string]string)
	for _, f := range fields {
		got[f.Name] = f.Value
	}
	testsupport.True(t, got[":path"] == r.target && got["x-long"] == strings.Repeat("f", 20000) && got["content-length"] == "40000", "the header block did not survive the split")
	var body []byte
	for ended := false; !ended; {
		f := next[*h2.DataFrame](p)
		testsupport.True(t, f.Length <= http2codec.MaxFrameSize, "DATA is %v", f)
		body = append(body, f.Data()...)
		ended = f.StreamEnded()
	}
	testsupport.Equal(t, string(body), r.body, "the body did not survive the split: %v")
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
	f := next[*h2.DataFrame](p)
	testsupport.True(t, f.Length == maxDataFrame, "the first DATA is %v", f)
	f = next[*h2.DataFrame](p)
	p.respond(f.StreamID, "ok")
	wait(t, done).wantBody(t, "ok")
}

func TestTableSizeOfThePeerIsObeyed(t *testing.T) {
	p := connect(t, testOptions(), h2.Setting{ID: h2.SettingHeaderTableSize, Val: 0})
	// The peer's decoder allows no table. It refuses a block that uses a table, or that does not
	// begin with a table size of 0.
	strict := hpack.NewDecoder(4096, nil)
	p.fr.ReadMetaHeaders = nil
	roundTrip := func(first bool) {
		t.Helper()
		r := get("/")
		r.fields = "X-Same: always\r\n"
		done := p.start(r)
		f := next[*h2.HeadersFrame](p)
		block := f.HeaderBlockFragment()
		testsupport.True(t, first == (block[0] == http2codec.TableSize), "block begins with %#x", block[0])
		if first {
			strict.SetAllowedMaxDynamicTableSize(0)
		}
		_, err := strict.DecodeFull(block)
		testsupport.NoError(t, err)
		p.respond(f.StreamID, "ok")
		wait(t, done).wantBody(t, "ok")
	}
	roundTrip(true)
	for range 3 {
		roundTrip(false)
	}
}

func TestHeaderListOverThePeersLimitIsNotSent(t *testing.T) {
	for _, tt := range []struct {
		limit  uint32
		target int
		want   exchange.Outcome
	}{
		{1, 0, exchange.BadResponse}, // before: too_large, though no request is small enough
		{1000, 1000, exchange.BadResponse},
		{1000, 10000, exchange.TooLarge},
		{10000, 10000, exchange.TooLarge},
	} {
		p := connect(t, testOptions(), h2.Setting{ID: h2.SettingMaxHeaderListSize, Val: tt.limit})
		r := get("/" + strings.Repeat("x", tt.target))
		detail := fmt.Sprintf("the SSP's SETTINGS_MAX_HEADER_LIST_SIZE of %d; the SSP must raise it, or see ssps[].protocol", tt.limit)
		r.do(p.conn).wantError(t, want{outcome: tt.want, progress: exchange.NotSent, detail: detail})
		if tt.limit > 1 {
			p.exchange(get("/short"), "ok")
		}
	}
}

func TestUnknownSettingsAreIgnored(t *testing.T) {
	p := connect(t, testOptions(), h2.Setting{ID: 0x99, Val: 1 << 31}, h2.Setting{ID: h2.SettingEnablePush, Val: 0})
	p.exchange(get("/"), "ok")
}

func settingsPayload(settings ...h2.Setting) (p []byte) {
	for _, s := range settings {
		p = http2codec.AppendSetting(p, s.ID, s.Val)
	}
	return p
}

// maxMaxStreams is the highest value of pool.max_streams_per_conn.
const maxMaxStreams = 1 << 14

// A larger initial window may wake uploads, so it visits all streams. The visits count as flood, as
// frames do.
func TestRepeatedlyGrowingInitialWindowsAreAFlood(t *testing.T) {
	p := connect(t, with(func(o *Options) { o.MaxStreams = 10000 }), h2.Setting{ID: h2.SettingInitialWindowSize, Val: 0})
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
