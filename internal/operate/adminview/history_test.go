package adminview

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"adbuffer/internal/setup/reload"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

func TestHistoryIsRatesBetweenLooks(t *testing.T) {
	h, now := new(history), time.Now()
	h.addPoint(now, &pool.Snapshot{Arrivals: 1000, Holds: 900, HoldSeconds: 90})
	testsupport.MustTrue(t, len(h.Rate) == 0, "one look gives %v", h.Rate)
	h.addPoint(now.Add(2*time.Second), &pool.Snapshot{Arrivals: 1300, Holds: 1100, HoldSeconds: 100, Saturation: 0.25, Pending: 3})
	h.addPoint(now.Add(4*time.Second), &pool.Snapshot{Arrivals: 1300, Holds: 1100, HoldSeconds: 100})
	if h.Rate[0] != 150 || h.HoldMillis[0] != 50 || h.Saturation[0] != 0.25 || h.Waiting[0] != 3 || h.Rate[1] != 0 || h.HoldMillis[1] != 0 {
		t.Errorf("history %+v", h)
	}
}

func TestHistoryHasTheLimitOfAPoolThatSizesItself(t *testing.T) {
	h, now := new(history), time.Now()
	look := func(auto *pool.AutoSnapshot) (text string) {
		now = now.Add(historyStep)
		h.addPoint(now, &pool.Snapshot{Auto: auto})
		all := histories{bySSP: map[string]*history{"a": h}}
		out, err := json.Marshal(all.view(""))
		testsupport.NoError(t, err)
		return string(out)
	}
	look(nil)
	look(&pool.AutoSnapshot{Limit: 16, Need: 10})
	if got := look(&pool.AutoSnapshot{Limit: 40, Need: 38}); !strings.Contains(got, `"auto_limit":[16,40],"auto_need":[10,38]`) {
		t.Errorf("the history is %s", got)
	}
	if got := look(nil); strings.Contains(got, "auto_") {
		t.Errorf("the pool has its configured size, and its history is %s", got)
	}
}

func TestHistoryOfAPoolThatReplacesAnotherBeginsAtZero(t *testing.T) {
	ssp := startSSP(t)
	versions := versionsOf(t, oneSSP(ssp, "a"))
	h, now := newHistories(zap.NewNop()), time.Now()
	look := func() {
		h.look(now, versions.Current().Parts, nil)
		now = now.Add(historyStep)
	}
	acquire := func() {
		t.Helper()
		place, err := versions.Current().Pools[0].Acquire(&exchange.Exchange{Wanted: exchange.Wanted{Context: t.Context(), Deadline: time.Now().Add(30 * time.Second)}})
		testsupport.NoError(t, err)
		place.Release(new(exchange.Exchange))
	}
	look()
	acquire()
	look()
	replace(t, versions, oneSSP(ssp, "a", "protocol: http1"))
	for range 7 { // more than the old pool had
		acquire()
	}
	look()
	acquire()
	look()
	if got := h.bySSP["a"].Rate; len(got) != 2 || got[0] != 0.5 || got[1] != 0.5 {
		t.Errorf("the rates are %v, want one request in each of the two intervals between looks at the same pool", got)
	}
	replace(t, versions, oneSSP(ssp, "b"))
	look()
	testsupport.True(t, h.bySSP["a"] == nil && h.bySSP["b"] != nil, "the history is %v", h.bySSP)
}

func TestHistoryKeepsTheLastFiveMinutes(t *testing.T) {
	testsupport.Equal(t, historyStep, 2*time.Second, "a point every %v")
	h, now := new(history), time.Now()
	for i := range 400 {
		h.addPoint(now.Add(time.Duration(i)*historyStep), &pool.Snapshot{Arrivals: uint64(i * i), Auto: new(pool.AutoSnapshot)})
	}
	for name, n := range map[string]int{"rate": len(h.Rate), "saturation": len(h.Saturation), "hold": len(h.HoldMillis), "waiting": len(h.Waiting), "limit": len(h.AutoLimit), "need": len(h.AutoNeed)} {
		testsupport.Equal(t, n, 150, "%[2]s: %[1]d points", name)
	}
	testsupport.AtMost(t, cap(h.Rate), 300, "memory for %v points")
	testsupport.Equal(t, h.Rate[149], 398.5, "the last point is %v") // (399² - 398²) / 2 s
}

func TestIdleTimeoutToSetIsLoggedOncePerChange(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	w := newHistories(zap.New(core))
	o := &pool.Options{IdleTimeout: 55 * time.Second}
	for _, learned := range []float64{0, 0, 30, 30, 30.2, 20, 20, 70} {
		w.adviseLocked("openx", &pool.Snapshot{LearnedIdleSeconds: learned}, o)
	}
	var set []time.Duration
	for _, e := range logs.All() {
		f := e.ContextMap()
		set = append(set, f["set"].(time.Duration))
		testsupport.True(t, f["ssp"] == "openx" && f["now"] == 55*time.Second, "logged %v", f)
	}
	if len(set) != 2 || set[0] != 28*time.Second || set[1] != 19*time.Second {
		t.Errorf("logged advice of %v, want 28s and 19s, once each", set)
	}
}

func TestPercentilesOfTheLastMinuteExcludeOlderRequests(t *testing.T) {
	versions := versionsOf(t, oneSSP(startSSP(t), "a"))
	s := versions.Current().SSPs[0]
	h, now := newHistories(zap.NewNop()), time.Now()
	observe := func(n int, d time.Duration) {
		for range n {
			s.Latency().ObserveDuration(d)
		}
	}
	look := func(d time.Duration) {
		for range d / historyStep {
			h.look(now, versions.Current().Parts, nil)
			now = now.Add(historyStep)
		}
	}
	testsupport.Equal(t, ofLastMinute(h, s), (lastMinute{}), "before the first request: %+v")
	observe(100, 20*time.Millisecond)
	look(30 * time.Second)
	observe(10, 200*time.Millisecond)
	testsupport.Equal(t, ofLastMinute(h, s), (lastMinute{P50Seconds: 0.02, P99Seconds: 0.2}), "after half a minute: %+v")
	look(34 * time.Second)
	testsupport.Equal(t, ofLastMinute(h, s), (lastMinute{P50Seconds: 0.2, P99Seconds: 0.2}), "after a minute: %+v")
	look(40 * time.Second)
	if got := ofLastMinute(h, s); got != (lastMinute{}) || s.Snapshot().P99Seconds != 0.2 {
		t.Errorf("after a minute without requests: %+v", got)
	}
}

// The conditions of an SSP are about the requests since the fifth look back: the last ten seconds.
func TestOutcomesAreRecentUntilFiveLooksHavePassed(t *testing.T) {
	versions := versionsOf(t, oneSSP(startSSP(t), "a"))
	s := versions.Current().SSPs[0]
	h, now := newHistories(zap.NewNop()), time.Now()
	look := func() (recent uint64) {
		h.look(now, versions.Current().Parts, nil)
		now = now.Add(historyStep)
		_, _, last := h.ofSSP(s, s.Snapshot().Outcomes)
		return last.outcomes["pending_full"]
	}
	look()
	s.Refused(exchange.PendingFull)
	for n := range 4 {
		testsupport.Equal(t, look(), 1, "after %[2]d looks %[1]d are recent", n+1)
	}
	testsupport.Equal(t, look(), 0, "after five looks %d are recent")
}

// A look is two seconds. An SSP is trouble from the first look after which most of its responses in the last ten seconds,
// or in a longer time with 20 responses, have a status of 4xx.
func TestAnSSPThatRejectsMostRequestsIsTroubleUntilItAcceptsThem(t *testing.T) {
	for _, test := range []struct {
		name            string
		fills, rejected int // of each look, for a minute
		begins, ends    int // the first look that finds the trouble, and the first after the minute that does not
		quietFills      int // of each look after the minute
		healthyBefore   bool
	}{
		{name: "it rejects everything", rejected: 100, begins: 1, ends: 3, quietFills: 100},
		{name: "it rejects everything after a good minute", rejected: 100, begins: 3, ends: 3, quietFills: 100, healthyBefore: true},
		{name: "one request in two seconds", rejected: 1, begins: 20, ends: 10, quietFills: 1},
		{name: "its traffic stops", rejected: 100, begins: 1, ends: 30},
		{name: "most", fills: 9, rejected: 11, begins: 1, ends: 1, quietFills: 20},
		{name: "half", fills: 10, rejected: 10},
		{name: "nineteen in all", rejected: 19, begins: 2, ends: 3, quietFills: 19},
	} {
		t.Run(test.name, func(t *testing.T) {
			versions := versionsOf(t, oneSSP(startSSP(t), "a"))
			core, lines := observer.New(zap.InfoLevel)
			v, now := New(versions, zap.New(core)), time.Now()
			s := versions.Current().SSPs[0]
			look := func(fills, rejected int) bool {
				for range fills {
					s.Refused(exchange.Fill)
				}
				for range rejected {
					s.Refused(exchange.ClientError)
				}
				now = now.Add(historyStep)
				v.history.look(now, versions.Current().Parts, nil)
				return s.Failed(exchange.ClientError, nil)
			}
			look(0, 0)
			if test.healthyBefore {
				for range 35 {
					look(100, 0)
				}
			}
			begins, ends := 0, 0
			for i := range 30 {
				if look(test.fills, test.rejected) && begins == 0 {
					begins = i + 1
				}
			}
			if row := v.history.rowOf(versions.Current().Parts[0]); begins > 0 {
				testsupport.True(t, row.Trouble == "rejects" && row.LastMinute.Failed == 0 && row.LastMinute.Rejected >= 20, "the row is %+v", row)
			}
			for i := range 50 {
				if !look(test.quietFills, 0) && ends == 0 {
					ends = i + 1
				}
			}
			if begins != test.begins || test.begins > 0 && ends != test.ends {
				t.Errorf("the trouble begins with look %d, and ends with look %d after the minute; want %d and %d", begins, ends, test.begins, test.ends)
			}
			var logged []string
			for _, l := range lines.All() {
				logged = append(logged, l.Message)
			}
			if want := []string{"the SSP rejects most requests", "the SSP accepts requests again"}; test.begins > 0 && !slices.Equal(logged, want) || test.begins == 0 && logged != nil {
				t.Errorf("the log has %v", logged)
			}
		})
	}
}

// The counts of the new SSP are not compared with those of the removed SSP: differences would be
// negative.
func TestAnSSPThatIsRemovedAndAddedBetweenTwoLooksStartsANewMinute(t *testing.T) {
	first, again := versionsOf(t, oneSSP(startSSP(t), "a")).Current().Parts[0], versionsOf(t, oneSSP(startSSP(t), "a")).Current().Parts[0]
	h, now := newHistories(zap.NewNop()), time.Now()
	for range 1000 {
		first.SSP.Latency().ObserveDuration(time.Second)
	}
	for range 60 * time.Second / historyStep {
		h.look(now, []*reload.Part{first}, nil)
		now = now.Add(historyStep)
	}
	again.SSP.Latency().ObserveDuration(20 * time.Millisecond)
	want := lastMinute{P50Seconds: 0.02, P99Seconds: 0.02}
	testsupport.Equal(t, ofLastMinute(h, again.SSP), want, "before the next look: %+v")
	h.look(now, []*reload.Part{again}, nil)
	testsupport.Equal(t, ofLastMinute(h, again.SSP), want, "after the next look: %+v")
}

// ofLastMinute is lastMinute without the time that it covers.
func ofLastMinute(h *histories, s *ssp.SSP) lastMinute {
	m, _, _ := h.ofSSP(s, s.Snapshot().Outcomes)
	m.Seconds = 0
	return m
}
