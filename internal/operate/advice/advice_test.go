package advice

import (
	"strings"
	"testing"
	"time"

	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/ssp/sizer"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// loaded returns a pool of 100 HTTP/1 connections with 1,000 requests/s.
func loaded(hold float64, advised int) (*pool.Snapshot, *pool.Options) {
	return &pool.Snapshot{Protocol: exchange.HTTP1, PlacesLimit: 100, Need: pool.Need{
		WindowSeconds: 60, ArrivalsPerSecond: 1000, HoldSeconds: hold, Load: 1000 * hold, AdvisedPlaces: advised, AdvisedConnections: advised,
	}}, &pool.Options{MaxConns: 100, MaxHTTP2Conns: 4}
}

func wantText(t *testing.T, got string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		testsupport.True(t, strings.Contains(got, p), "%q does not contain %q", got, p)
	}
}

func TestAdviceNamesTheSettingAndBothValues(t *testing.T) {
	s, o := loaded(0.15, 176)
	wantText(t, ForPool(s, o), "Set pool.max_conns to 176, now 100.", "1,000 requests/s × 150 ms keep 150 places in use")

	s, o = loaded(0.15, 7)
	s.Protocol = exchange.HTTP2
	wantText(t, ForPool(s, o), "Set pool.max_http2_conns to 7, now 4.")
	o.MaxConns = 3 // max_conns then bounds the HTTP/2 connections
	wantText(t, ForPool(s, o), "Set pool.max_conns to 7, now 3.")
}

// The advice allows for a peak as adbuffer plan does: with a fifth more places than were in use at once.
func TestAdviceAllowsForThePlacesThatWereInUseAtOnce(t *testing.T) {
	s, o := loaded(0.05, 65)
	s.PlacesInUseMax = 83
	wantText(t, ForPool(s, o), "pool.max_conns 100 is enough.")
	s.PlacesInUseMax = 84
	wantText(t, ForPool(s, o), "Set pool.max_conns to 101, now 100. 1,000 requests/s", "with 65 connections, 3 % of the requests would wait. But 84 places were in use at once.")
	s.PlacesInUseMax, s.PlacesLimit, s.SaturationMax, o.MaxConns = 100, 120, 1, 120 // full until it was enlarged as advised
	wantText(t, ForPool(s, o), "pool.max_conns 120 is enough.")
	s.PlacesInUseMax, s.Protocol, s.PlacesLimit, o.MaxConns, o.MaxStreams = 336, exchange.HTTP2, 400, 100, 100 // at most half full
	wantText(t, ForPool(s, o), "Set pool.max_http2_conns to 65, now 4.")
	s.Need.AdvisedConnections = 1
	wantText(t, ForPool(s, o), "Set pool.max_http2_conns to 9, now 4.", "But 336 places were in use at once.")
}

func TestAdviceSaysThatTheLoadCountsRefusedRequests(t *testing.T) {
	s, o := loaded(0.1, 120)
	got := ForPool(s, o)
	testsupport.True(t, !strings.Contains(got, "refused"), "the advice is %q", got)
	s.Need.Load = 100.1
	wantText(t, ForPool(s, o), "Set pool.max_conns to 120, now 100.", "if clients repeat refused requests, fewer connections are enough")
}

func TestForAutoNamesTheLastDecision(t *testing.T) {
	s, o := loaded(0.15, 176)
	if got := ForAuto(s, o); got != nil {
		t.Errorf("a pool of the configured size: %q", got)
	}
	s.Auto = &pool.AutoSnapshot{Limit: 96, Need: 90, HoldSeconds: 20, Decisions: []sizer.Decision{{Kind: sizer.Reverted, From: 120, To: 96, Waiting: 0.051}}}
	got := ForAuto(s, o)
	wantText(t, got[0], "96 places now, and its load needs 90", "reverted at ", "from 120 to 96", "5.1 % of the requests waited", "stays for 20 s")
	s.Auto.DryRun = true
	wantText(t, ForAuto(s, o)[0], "dry run", "would allow 96 places")
}

func TestForAutoSaysWhenIdleConnectionsClose(t *testing.T) {
	s, o := loaded(0.15, 176)
	s.Auto, s.LearnedIdleSeconds, o.IdleTimeout = &pool.AutoSnapshot{IdleTimeoutSeconds: 55}, 60, 55*time.Second
	got := ForAuto(s, o)
	testsupport.True(t, len(got) == 1, "with the configured timeout: %q", got)
	s.Auto.IdleTimeoutSeconds, s.LearnedIdleSeconds = 18, 19
	wantText(t, ForAuto(s, o)[1], "pool.auto closes idle connections after 18 s instead of 55s", "after about 19 s idle")
	o.Auto.Enabled = true
	testsupport.Equal(t, IdleTimeout(s, o), 0, "advises %v, which is in force")
	s.Auto.DryRun, o.Auto.DryRun = true, true
	wantText(t, ForAuto(s, o)[1], "would close idle connections after 18 s")
	wantText(t, ForIdleTimeout(s, o), "Set pool.idle_timeout to 18s")
}

func TestAdviceForAPoolThatFitsSaysWhenItIsFull(t *testing.T) {
	s, o := loaded(0.05, 65)
	wantText(t, ForPool(s, o), "pool.max_conns 100 is enough.", "full at 2,000 requests/s", "held for 100 ms")
}

func TestAdviceNamesConnectionsThatTheLoadDoesNotNeed(t *testing.T) {
	s, o := loaded(0.01, 15)
	o.MinIdle = 30 // a load that doubles needs them
	got := ForPool(s, o)
	testsupport.True(t, !strings.Contains(got, "min_idle"), "the advice is %q", got)
	o.MinIdle = 31
	wantText(t, ForPool(s, o), "pool.max_conns 100 is enough.", "pool.min_idle 31 keeps more connections open than this load needs.")
}

func TestThereIsNoAdviceWithoutLoad(t *testing.T) {
	wantText(t, ForPool(&pool.Snapshot{}, &pool.Options{}), "No requests in the last minute")
	wantText(t, ForPool(&pool.Snapshot{Need: pool.Need{ArrivalsPerSecond: 3}}, &pool.Options{}), "No place was released")
}

func TestAdvisedIdleTimeoutIsBelowTheLearnedOne(t *testing.T) {
	for _, c := range []struct {
		learned   float64
		set, want time.Duration
	}{
		{0, 55 * time.Second, 0},
		{75, 55 * time.Second, 0},
		{57, 55 * time.Second, 54 * time.Second},
		{60, 55 * time.Second, 0},
		{60, 0, 57 * time.Second}, // 0 = no limit
		{5.2, 55 * time.Second, 4 * time.Second},
		{1.1, 55 * time.Second, 550 * time.Millisecond},
	} {
		s := &pool.Snapshot{LearnedIdleSeconds: c.learned}
		o := &pool.Options{IdleTimeout: c.set}
		testsupport.Equal(t, IdleTimeout(s, o), c.want, "learned %[2]v s, set %[3]v: advised %[1]v", c.learned, c.set)
		if text := ForIdleTimeout(s, o); (text == "") != (c.want == 0) || c.want > 0 && !strings.Contains(text, "Set pool.idle_timeout to "+c.want.String()) {
			t.Errorf("learned %v s, set %v: %q", c.learned, c.set, text)
		}
	}
}

func TestNumbersAreForPeople(t *testing.T) {
	for v, want := range map[float64]string{0.5: "0.5", 0.001: "less than 0.01", 3.14159: "3.14", 99.94: "99.9", 174.85: "175", 1234.4: "1,234", 1000000: "1,000,000"} {
		testsupport.Equal(t, Number(v), want, "Number(%[2]v) is %[1]q", v)
	}
	wantText(t, millis(0.08), "80 ms")
	wantText(t, count(1, "replica"), "1 replica")
	wantText(t, count(2000, "replica"), "2,000 replicas")
	wantText(t, millis(75), "75 s")
}
