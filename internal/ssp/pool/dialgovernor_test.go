package pool

import (
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// refuse makes all dials fail after the given duration.
func (s *fakeSSP) refuse(after time.Duration) {
	s.always(dialResult{after: after, err: errRefused})
}

// refuseAt makes all dials to an endpoint fail. All other dials succeed.
func (s *fakeSSP) refuseAt(endpoint string) {
	s.set(func(c dialCall) dialResult {
		if c.addr.Name == endpoint {
			return dialResult{err: errRefused}
		}
		return dialResult{after: msec}
	})
}

// dead makes an address a black hole. Dials to all other addresses succeed.
func (s *fakeSSP) dead(a exchange.Address) {
	s.set(func(c dialCall) dialResult {
		if c.addr == a {
			return dialResult{after: 250 * msec, err: errRefused}
		}
		return dialResult{after: 5 * msec}
	})
}

func TestRefusingSSPCostsFewDialsAndRequestsFailAtOnce(t *testing.T) {
	testsupport.Long(t)
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxIdle = 256, 256 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.refuse(0)
		const seconds = 30
		slowest := time.Duration(0)
		for i := range seconds * 100 {
			r := ask(t, p, sec)
			pass(10 * msec)
			testsupport.MustTrue(t, r.ended(), "request %d waits, but every address refuses", i)
			slowest = max(slowest, r.took)
			e := exchange.AsError(r.err)
			testsupport.MustTrue(t, e.Outcome == exchange.ConnectFailed && strings.Contains(e.Error(), "refused by the script"), "request %d got %v, want the last error", i, r.err)
		}
		testsupport.Equal(t, slowest, 0, "a request took %v, want at once")
		// Two dials at first, two after 0.1, 0.3, 0.7, 1.5 and 3.1 s, and then two every 5
		// s, ±20 %.
		testsupport.Between(t, s.dialCount(), 18, 30, "%d dials in %d s, want about 22", seconds)
		n := failedDials(p, "refused")
		testsupport.True(t, n == s.dialCount(), "%d refused dials counted, want %d", n, s.dialCount())
		got := p.Snapshot().LastDialError
		testsupport.True(t, strings.Contains(got, "refused by the script"), "the snapshot's last error is %q", got)
	})
}

func TestPausesDoubleWithJitterUpToTheirLimit(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.refuse(0)
		var at []time.Time // of all dials except the first, whose failure begins no pause
		for len(at) < 8 {
			askOnce(t, p, sec)
			pass(msec)
			if n := s.dialCount() - 1; n > len(at) {
				at = append(at, time.Now())
			}
		}
		want, exact := 100*msec, 0
		for i := 1; i < len(at); i++ {
			gap := at[i].Sub(at[i-1])
			testsupport.True(t, gap >= want*8/10-msec && gap <= min(5*sec, want*12/10)+msec, "pause %d is %v, want %v ±20 %%, and at most 5s", i, gap, want)
			if gap == want {
				exact++
			}
			want = min(2*want, 5*sec*5/6)
		}
		testsupport.AtMost(t, exact, 3, "%d pauses are exact: there is no jitter")
	})
}

func TestPausesStayWithinAnyBackoff(t *testing.T) {
	for _, limits := range [][2]time.Duration{{time.Millisecond, time.Hour}, {time.Hour, time.Hour}, {30 * time.Minute, time.Hour}, {time.Millisecond, time.Millisecond}} {
		var s addressState
		now := time.Unix(0, 0)
		for i := range 200 {
			s.countFailure(i, false, now, &Options{BackoffMin: limits[0], BackoffMax: limits[1]})
			if i == 0 {
				testsupport.MustTrue(t, !s.until.After(now), "back-off %v: the first failure begins a pause", limits)
				continue
			}
			pause := s.until.Sub(now)
			testsupport.MustTrue(t, pause >= min(limits[0], limits[1])/2 && pause <= limits[1], "back-off %v: pause %d is %v", limits, i, pause)
			now = s.until
		}
	}
}

// The rows are those of the table of addressState.countFailure.
func TestAFailureBeginsAPauseUnlessRequestsWaitForOneMoreDial(t *testing.T) {
	now := time.Unix(0, 0)
	for _, c := range []struct {
		failures       int
		again, retried bool

		wantFailures            int
		wantRetried, wantPaused bool
	}{
		{0, false, false, 1, false, false},
		{0, true, false, 1, true, false},
		{1, false, false, 2, false, true},
		{1, false, true, 2, false, true},
		{1, true, false, 1, true, false},
		{1, true, true, 2, false, true},
		{5, true, false, 5, true, false},
		{5, true, true, 6, false, true},
	} {
		s := addressState{failures: c.failures, retriedAtOnce: c.retried}
		before := s
		s.countFailure(c.failures+1, c.again, now, &Options{BackoffMin: time.Second, BackoffMax: time.Hour})
		testsupport.Equal(t, s, before, "%+[2]v: a dial that began before the last failure led to %+[1]v", c)
		s.countFailure(c.failures, c.again, now, &Options{BackoffMin: time.Second, BackoffMax: time.Hour})
		testsupport.True(t, s.failures == c.wantFailures && s.retriedAtOnce == c.wantRetried && s.until.After(now) == c.wantPaused, "%+v led to %+v", c, s)
	}
}

func TestAddressOnTrialGetsOneDialAtATime(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxIdle, o.MaxDials, o.MaxPending = 64, 64, 16, 100 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.refuse(0)
		askAll(t, p, 50, sec)
		pass(0)
		// After the first failure of max_dials dials that began together, one more dial may start.
		n := s.dialCount()
		testsupport.MustTrue(t, n <= 16+1, "%d dials at first, max_dials is 16", n)
		pass(150 * msec) // the pause is over
		s.refuse(20 * msec)
		before, lookups := s.dialCount(), s.lookups.Load()
		askAll(t, p, 50, sec)
		pass(msec)
		testsupport.Equal(t, s.dialCount()-before, 1, "%d dials to an address on trial")
		testsupport.Equal(t, s.lookups.Load()-lookups, 1, "%d goroutines looked up an address on trial")
		testsupport.Equal(t, p.Snapshot().Dialing, 1, "the snapshot shows %d dials under way")
		pass(sec) // the second pause is over
		s.always(dialResult{after: 20 * msec})
		all := askAll(t, p, 50, sec)
		pass(20 * msec)
		// The trial succeeded: more dials follow at once.
		testsupport.Equal(t, p.Snapshot().Dialing, 16, "%d dials after the trial")
		pass(sec)
		doAll(all)
	})
}

func TestDialsThatFailTogetherCountAsOneFailure(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxIdle = 16, 16 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.refuse(5 * msec)
		askAll(t, p, 16, sec)
		pass(11 * msec)
		testsupport.MustEqual(t, s.dialCount(), 17, "%d dials, want 16, and one more at once")
		pass(130 * msec) // the pause after the second failure, not the seventeenth
		r := ask(t, p, sec)
		pass(5 * msec)
		r.wantWaits() // for one dial more
		pass(5 * msec)
		r.wantErr(exchange.ConnectFailed, 10*msec)
		testsupport.Equal(t, s.dialCount(), 19, "%d dials")
	})
}

func TestWaitersGetTheErrorOfTheirDialAndLaterRequestsLearnOfTheBackoff(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		bad := &exchange.Error{Outcome: exchange.TLSFailed, Progress: exchange.NotSent, Detail: "its certificate has expired"}
		s.always(dialResult{after: 5 * msec, err: bad})
		first := ask(t, p, sec)
		pass(10 * msec)
		testsupport.Equal(t, first.wantErr(exchange.TLSFailed, 10*msec), bad, "the first error is %v")
		later := ask(t, p, sec)
		pass(0)
		e := later.wantErr(exchange.TLSFailed, 0)
		testsupport.True(t, e.Err == bad && strings.Contains(e.Detail, "pool.dial_backoff"), "the error says %q", e.Error())
		testsupport.Equal(t, failedDials(p, "tls"), 2, "%d TLS failures counted")
	})
}

func TestDeadAddressCostsOnlyItsOwnDials(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxIdle, o.MaxRequests = 8, 8, 1 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.addrs = addresses(3)
		dead := s.addrs[1]
		s.dead(dead)
		// Each request needs its own connection. Once the black hole is known, no request may wait
		// for it, even while the pool dials it again.
		for i := range 300 {
			pass(90 * msec)
			r := askAfterLearning(t, p, i)
			testsupport.MustTrue(t, i < 10 || r.took <= 5*msec, "request %d waited %v", i, r.took)
			r.do()
		}
		tries := 0
		for _, c := range s.dials {
			if c.addr == dead {
				tries++
			}
		}
		testsupport.Between(t, tries, 4, 20, "%d dials to the dead address, want about one every 5 s")
	})
}

func TestAddressesTakeTurns(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxIdle = 12, 12 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.addrs = addresses(4)
		all := askAll(t, p, 12, sec)
		pass(20 * msec)
		count := map[exchange.Address]int{}
		for _, r := range all {
			count[r.conn().addr]++
			r.do()
		}
		for _, a := range s.addrs {
			testsupport.Equal(t, count[a], 3, "%[2]v has %[1]d connections", a)
		}
	})
}

func TestFailedLookupBacksOffLikeAnAddress(t *testing.T) {
	for name, empty := range map[string]bool{"an error": false, "no address": true} {
		runInBubble(t, name, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
			gone := &exchange.Error{Outcome: exchange.ConnectFailed, Progress: exchange.NotSent, Err: &net.DNSError{Err: "no such host"}}
			addrs := s.addrs
			s.addrs = nil
			if !empty {
				s.lookup = gone
			}
			for range 300 {
				r := ask(t, p, sec)
				pass(10 * msec)
				r.wantErr(exchange.ConnectFailed, 0)
			}
			testsupport.Between(t, s.lookups.Load(), 3, 12, "%d look-ups in 3 s, want about 5")
			n := failedDials(p, "dns")
			testsupport.True(t, empty || int64(n) == s.lookups.Load(), "%d failed look-ups counted, want %d", n, s.lookups.Load())
			e := p.Snapshot().Endpoints[0]
			testsupport.True(t, e.Unreachable && strings.HasPrefix(e.LastDialError, "connect_failed: "), "without an address the endpoint is %+v", e)
			s.locked(func() { s.addrs, s.lookup = addrs, nil })
			pass(6 * sec)
			acquire(t, p).do()
			e = p.Snapshot().Endpoints[0]
			testsupport.True(t, !e.Unreachable && e.LastDialError == "", "after a look-up that succeeds the endpoint is %+v", e)
		})
	}
}

// Both addresses refuse, and the pool dials them again when their pause ends. Then one of them is a
// black hole: no request waits for it alone.
func TestTrialOfOneAddressDoesNotDelayAnother(t *testing.T) {
	inBubble(t, func(o *Options) { o.PendingTimeout = sec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.addrs = addresses(2)
		acquire(t, p)
		s.set(func(c dialCall) dialResult {
			switch {
			case c.n < 3:
				return dialResult{err: errRefused}
			case c.addr == s.addrs[0]:
				return dialResult{after: 740 * msec, err: errRefused}
			default:
				return dialResult{after: 5 * msec}
			}
		})
		r := ask(t, p, sec)
		pass(sec)
		testsupport.True(t, r.err == nil && r.took <= 126*msec, "the request got %v after %v, want a connection when the second address may be tried again", r.err, r.took)
	})
}

// With max_conns 1, a trial that hangs would take the only connection.
func TestTheLastConnectionIsNotUsedForATrial(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxRequests = 1, 1 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.addrs = addresses(2)
		dead := s.addrs[0]
		s.dead(dead)
		first := ask(t, p, sec)
		pass(sec)
		first.wantPlace()
		for i := range 100 {
			pass(100 * msec)
			r := acquire(t, p)
			testsupport.MustTrue(t, r.took <= 5*msec, "request %d waited %v", i, r.took)
			r.do()
		}
		// If no other address is left, the pool dials it.
		s.set(func(c dialCall) dialResult {
			if c.addr != dead {
				return dialResult{err: errRefused}
			}
			return dialResult{after: 5 * msec}
		})
		synctest.Wait()
		testsupport.Equal(t, acquire(t, p).conn().addr, dead, "got a connection to %v")
	})
}
