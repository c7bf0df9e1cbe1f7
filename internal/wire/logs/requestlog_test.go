package logs

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// logged is a RequestLog, and the lines that it wrote.
type logged struct {
	*RequestLog
	limiter *Limiter
	lines   *observer.ObservedLogs
}

func newLogged() *logged {
	core, lines := observer.New(zapcore.InfoLevel)
	log := zap.New(core)
	limiter := NewLimiter(log)
	return &logged{NewRequestLog(log, limiter), limiter, lines}
}

// end is a request that ended.
func (l *logged) end(o *AccessOptions, failed bool, took time.Duration) {
	if failed {
		l.endAs(o, RequestFailed, took)
	} else {
		l.endAs(o, NotFailed, took)
	}
}

func (l *logged) endAs(o *AccessOptions, failed Failed, took time.Duration) {
	now := time.Now()
	w := l.Wants(o, failed, took, now)
	if w.None() {
		return
	}
	outcome := exchange.Fill
	if failed == RequestFailed {
		outcome = exchange.Deadline
	}
	l.Write(&Record{At: now, Outcome: outcome, Total: took, SSP: "a"}, w)
}

// count returns how many lines were written for a reason.
func (l *logged) count(r Reason) int {
	return l.lines.FilterField(zap.String("logged_for", r.String())).Len()
}

func TestEveryFailureIsLoggedWhateverTheSample(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		l := newLogged()
		o := &AccessOptions{Enabled: true, Sample: 0.01, Failures: true}
		for i := range 10_000 {
			l.end(o, i%1000 == 0, time.Millisecond)
		}
		testsupport.Equal(t, l.count(Failure), 10, "%d of 10 failures were logged")
		if n := l.count(Sampled); n < 40 || n > 200 { // 100, and six times its deviation
			t.Errorf("%d of 9990 requests were logged, with a sample of 0.01", n)
		}
	})
}

func TestAFloodOfFailuresWritesNoMoreThanTheCapAndCountsTheFurtherLines(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		l := newLogged()
		o := &AccessOptions{Enabled: true, Sample: 1, Failures: true, Slow: time.Second}
		for range 3 {
			for range 5000 {
				l.end(o, true, 2*time.Second)
			}
			time.Sleep(1100 * time.Millisecond)
		}
		testsupport.Equal(t, l.count(Failure), 300, "%d failures were logged in 3 seconds")
		testsupport.Equal(t, l.limiter.Suppressed(), 3*4900, "%d lines count as suppressed")
		said := l.lines.FilterMessageSnippet("suppressed").All()
		testsupport.True(t, len(said) == 3 && said[0].ContextMap()["lines"] == uint64(4900), "the log is %v", said)
	})
}

func TestSlowRequestsAndFailuresShareTheCap(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		l := newLogged()
		o := &AccessOptions{Enabled: true, Failures: true, Slow: 100 * time.Millisecond}
		l.end(o, false, 100*time.Millisecond) // not slow
		for range 60 {
			l.end(o, false, 101*time.Millisecond)
		}
		for range 60 {
			l.end(o, true, 0)
		}
		slow, failed := l.count(Slow), l.count(Failure)
		testsupport.True(t, slow == 60 && failed == 40, "%d slow requests and %d failures were logged, want 60 and 40", slow, failed)
		o.Failures, o.Slow = false, 0
		l.end(o, true, time.Hour)
		testsupport.Equal(t, l.lines.FilterMessage(message).Len(), 100, "a failure is logged though it is switched off: %d lines")
	})
}

func TestUnwantedRequestsAllocateNothing(t *testing.T) {
	l := newLogged()
	now := time.Now()
	for _, o := range []*AccessOptions{{}, {Enabled: true, Failures: true, Slow: time.Second}} {
		testsupport.Equal(t, testing.AllocsPerRun(100, func() { l.Wants(o, NotFailed, time.Millisecond, now) }), 0, "%v allocations")
	}
}

func TestTheLastFailuresAreRememberedThoughTheLogIsOff(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		l := newLogged()
		for i := range keptFailures + 10 {
			l.end(&AccessOptions{}, true, time.Duration(i))
			time.Sleep(time.Second)
		}
		l.end(&AccessOptions{}, false, 0)
		all := l.Failures()
		testsupport.True(t, len(all) == keptFailures && all[0].Total == keptFailures+9 && all[keptFailures-1].Total == 10, "%d failures are kept", len(all))
		for range 1000 {
			l.end(&AccessOptions{}, true, time.Hour)
		}
		n := 0
		for _, r := range l.Failures() {
			if r.Total == time.Hour {
				n++
			}
		}
		testsupport.Equal(t, n, failuresPerSecond, "%d failures of a second are kept")
	})
}

func TestFailedLegsAreRememberedAndDisplaceNoFailedRequest(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		l := newLogged()
		o := &AccessOptions{Enabled: true, Failures: true}
		l.endAs(o, RequestFailed, time.Hour)
		for i := range 200 {
			time.Sleep(time.Second)
			l.endAs(o, LegFailed, time.Duration(i))
		}
		time.Sleep(time.Second)
		l.endAs(o, RequestFailed, time.Minute)
		all := l.Failures()
		testsupport.MustTrue(t, len(all) == 52, "%d records are kept", len(all))
		testsupport.True(t, all[51].Total == time.Hour && all[50].Total == 150 && all[1].Total == 199, "the records end with %v, %v", all[50].Total, all[51].Total)
		testsupport.Equal(t, l.count(Failure), 2, "%d lines are logged for failures")
	})
}

func TestAWatcherGetsWhatItsFilterSelectsAndNoMoreThanItsShare(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		l := newLogged()
		w := l.Watch(Filter{Outcome: "deadline"})
		other := l.Watch(Filter{SSP: "b"})
		l.end(&AccessOptions{}, false, 0)
		for range 1000 {
			l.end(&AccessOptions{}, true, 0)
		}
		if n := len(w.Records()); n != watchPerSecond || w.Skipped() != 1000-watchPerSecond {
			t.Errorf("%d requests reported, and %d skipped", n, w.Skipped())
		}
		n := len(other.Records())
		testsupport.True(t, n == 0 && other.Skipped() == 0, "a watcher of another SSP received %d requests", n)
		w.Stop()
		other.Stop()
		testsupport.True(t, l.Wants(&AccessOptions{}, NotFailed, 0, time.Now()).None(), "requests have a cost for watchers that have stopped")
	})
}

func TestFiltersLookAtLegsToo(t *testing.T) {
	r := &Record{ID: "x", Route: "all", Outcome: exchange.Merged, Total: time.Second, Legs: []Leg{{SSP: "a", Outcome: exchange.Fill}, {SSP: "b", Outcome: exchange.Deadline}}}
	for _, c := range []struct {
		f    Filter
		want bool
	}{
		{Filter{}, true}, {Filter{SSP: "b"}, true}, {Filter{SSP: "c"}, false}, {Filter{Outcome: "deadline", SSP: "b"}, true}, {Filter{Outcome: "deadline", SSP: "a"}, false},
		{Filter{Outcome: "merged"}, true}, {Filter{ID: "x"}, true}, {Filter{Route: "all"}, true}, {Filter{Route: "one"}, false}, {Filter{Route: "all", SSP: "c"}, false}, {Filter{ID: "y"}, false}, {Filter{Slow: time.Second}, false}, {Filter{Slow: time.Second - 1}, true},
	} {
		testsupport.Equal(t, c.f.matches(r), c.want, "%[2]+v: %[1]v", c.f)
	}
}

func TestTextsAreCut(t *testing.T) {
	if s := Visible([]byte(strings.Repeat("\x00", 10_000))); len(s) > 517 {
		t.Errorf("%d bytes", len(s))
	}
	s := Cut(strings.Repeat("é", 10_000))
	whole := strings.Repeat("a", 512)
	testsupport.True(t, Cut(whole) == whole && Cut(whole+"a") == whole+"...", "512 bytes are cut to %d, 513 to %d", len(Cut(whole)), len(Cut(whole+"a")))
	testsupport.True(t, len(s) <= 517 && !strings.Contains(s, "\uFFFD"), "%d bytes", len(s))
}

// At the turn of a second, requests of both seconds come in any order.
func TestARequestOfTheSecondBeforeDoesNotBeginTheSecondAgain(t *testing.T) {
	var w secondCounter
	second, n := time.Unix(1_790_000_000, 0), 0
	for range 10 {
		for _, at := range []time.Time{second.Add(time.Millisecond), second.Add(-time.Millisecond)} {
			if w.allow(at, 3) {
				n++
			}
		}
	}
	testsupport.Equal(t, n, 3, "%d lines")
	// The next second begins; so does a clock that was set back by an hour.
	for _, at := range []time.Time{second.Add(time.Second), second.Add(-time.Hour), second} {
		testsupport.True(t, w.allow(at, 3), "no line at %v", at)
	}
}
