package pool

import (
	"fmt"
	"net"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// failFirst makes the first n dials fail after 5 ms. All later dials succeed.
func (s *fakeSSP) failFirst(n int, protocol exchange.Protocol, err error) {
	s.set(func(c dialCall) dialResult {
		if c.n < n {
			return dialResult{after: 5 * msec, err: err}
		}
		return dialResult{after: 5 * msec, protocol: protocol}
	})
}

// quickErrors are errors of dials that failed long before their timeouts.
var quickErrors = map[string]error{
	"refused":   errRefused,
	"handshake": &exchange.Error{Outcome: exchange.TLSFailed, Progress: exchange.NotSent, Detail: "the TLS handshake failed"},
}

// A single failure may be an accident: the pool dials again at once for the requests that wait.
func TestDialThatFailsOnceFailsNoRequest(t *testing.T) {
	for name, err := range quickErrors {
		for _, protocol := range []exchange.Protocol{exchange.HTTP1, exchange.HTTP2} {
			runInBubble(t, name+" "+protocol.String(), func(o *Options) { auto(o); o.MaxConns, o.MaxIdle = 50, 50 }, func(t *testing.T, s *fakeSSP, p *Pool) {
				s.failFirst(1, protocol, err)
				all := askAll(t, p, 50, sec)
				pass(100 * msec)
				for _, r := range all {
					testsupport.MustTrue(t, r.ended() && r.err == nil && r.ex.Redialed == 1, "a request: ended %v, %v, outlasted %d failures", r.ended(), r.err, r.ex.Redialed)
					r.do()
				}
			})
		}
	}
}

// That holds after earlier failures too. The dial after each pause is the only one to an address that
// has failed, so one accident more failed all requests that waited for it.
func TestDialThatFailsOnceAfterEarlierFailuresFailsNoRequest(t *testing.T) {
	for name, err := range quickErrors {
		for earlier := 1; earlier < 8; earlier++ {
			runInBubble(t, fmt.Sprint(name, earlier), nil, func(t *testing.T, s *fakeSSP, p *Pool) {
				s.failFirst(earlier+1, exchange.HTTP1, err)
				for s.dialCount() < earlier {
					r := askOnce(t, p, sec)
					pass(10 * msec)
					r.wantErr(exchange.AsError(err).Outcome, r.took)
				}
				pass(6 * sec) // the pause is over
				first, second := ask(t, p, sec), ask(t, p, sec)
				pass(15 * msec)
				doAll([]*request{first, second})
			})
		}
	}
}

// A dial that times out is not repeated at once after earlier failures: the requests that wait for it
// would wait twice as long.
func TestDialThatTimesOutAfterEarlierFailuresIsNotRepeatedAtOnce(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.failFirst(100, exchange.HTTP1, &exchange.Error{Outcome: exchange.ConnectFailed, Progress: exchange.NotSent, Err: timeoutError{}})
		for n := 2; n < 8; n++ { // the first failure begins no pause
			r := ask(t, p, sec)
			pass(20 * msec)
			r.wantErr(exchange.ConnectFailed, r.took)
			testsupport.MustEqual(t, s.dialCount(), n, "%d dials")
			pass(6 * sec)
		}
	})
}

func TestLookUpThatFailsOnceFailsNoRequest(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.lookup = &exchange.Error{Outcome: exchange.ConnectFailed, Progress: exchange.NotSent, Err: &net.DNSError{Err: "try again", IsTemporary: true}}
		s.lookupFails = 1
		acquire(t, p).do()
		testsupport.Equal(t, s.lookups.Load(), 2, "%d look-ups")
	})
}

// retry.max says how many failed dials a request outlasts. An address that has failed twice in a
// row still pauses.
func TestRequestOutlastsRedialsFailedDials(t *testing.T) {
	for _, c := range []struct{ redials, failing, dials int }{
		{0, 1, 1}, {1, 1, 2}, {1, 2, 2}, {3, 1, 2}, {3, 2, 2},
	} {
		inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.failFirst(c.failing, exchange.HTTP1, errRefused)
			r := &request{t: t, began: time.Now(), ex: &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(sec), Redials: c.redials}}}
			r.place, r.err = p.Acquire(r.ex)
			testsupport.True(t, (r.err != nil) == (c.dials == c.failing), "%+v: the request got %v", c, r.err)
			if r.err == nil {
				r.do()
			}
			testsupport.Equal(t, s.dialCount(), c.dials, "%[2]+v: %[1]d dials", c)
			used := r.ex.Redialed
			testsupport.True(t, used <= c.redials && used >= c.dials-1, "%+v: outlasted %d failed dials", c, used)
		})
	}
}

// A request that may outlast no failed dial fails with its dial. The next request starts a dial at
// once: the address pauses only after the second failure in a row.
func TestFirstFailureBeginsNoPause(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxRequests = 1 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.failFirst(1, exchange.HTTP1, errRefused)
		first := &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(sec)}}
		_, err := p.Acquire(first)
		testsupport.True(t, err == errRefused, "the first request got %v", err)
		r := acquire(t, p)
		testsupport.Equal(t, r.took, 5*msec, "the second request took %v, want a dial")
		r.do()
		// Only failures in a row begin a pause.
		s.set(func(c dialCall) dialResult {
			return dialResult{after: msec, err: map[bool]error{true: errRefused}[c.n%2 == 0]}
		})
		for range 20 {
			r := acquire(t, p)
			testsupport.MustTrue(t, r.took <= 2*msec, "a request waited %v", r.took)
			r.do()
		}
	})
}

// After a while the SSP refuses all dials, while many requests a second arrive. At most max_dials
// dials run at once, and two dials follow each pause.
func TestRefusingSSPGetsMaxDialsAndThenTwoAfterEachPause(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxIdle, o.MaxDials, o.MaxPending = 64, 64, 4, 1000 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.refuse(100 * msec)
		for range 60 * 50 {
			ask(t, p, sec)
			pass(20 * msec)
		}
		testsupport.Equal(t, s.maxDials, 4, "%d dials were under way at once")
		// Four dials, one more, two after each of 0.1, 0.2, 0.4, 0.8, 1.6 and 3.2 s, and then two
		// every 5 s, ±20 %. Each takes 0.1 s.
		testsupport.AtMost(t, s.dialCount(), 4+1+2*(6+60/4), "%d dials in a minute")
		for i, c := range s.dials[5:] {
			testsupport.True(t, i <= 0 || c.at.Sub(s.dials[5+i-1].at) >= 80*msec, "dial %d starts %v after the previous one", 5+i, c.at.Sub(s.dials[5+i-1].at))
		}
	})
}
