package pool

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

const msec = time.Millisecond

func TestConnectionClosedAtOnceCountsAsAFailedDial(t *testing.T) {
	inBubble(t, func(o *Options) { o.Protocol = exchange.HTTP2 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.always(dialResult{after: msec, protocol: exchange.HTTP2, closed: exchange.ClosedGoaway})
		for range 200 {
			r := ask(t, p, 50*msec)
			pass(50 * msec)
			testsupport.MustTrue(t, r.err != nil, "a request got a closed connection")
		}
		testsupport.AtMost(t, s.dialCount(), 20, "%d dials in 10 s, want few")
	})
}

func TestMinIdleCausesNoDialStormIfTheSSPClosesConnections(t *testing.T) {
	inBubble(t, func(o *Options) { o.Protocol, o.MinIdle = exchange.HTTP2, 1 }, func(t *testing.T, s *fakeSSP, _ *Pool) {
		for range 500 { // for 10 s, the SSP closes its connections
			for _, c := range s.openConns() {
				c.goAway(exchange.ClosedByPeer)
			}
			pass(20 * msec)
		}
		testsupport.Between(t, s.dialCount(), 3, 101, "%d dials in 10 s, want at most one in each dial_backoff.min")
	})
}

func TestStatesOfRemovedAddressesAreForgotten(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxRequests = 1 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		all := addresses(200)
		for i := range all {
			s.locked(func() { s.addrs = all[i : i+1] })
			acquire(t, p).do()
			synctest.Wait()
		}
		testsupport.AtMost(t, knownStates(p), 2, "the states of %d addresses are kept, want at most 2")
	})
}

func TestFailedDialsAreCountedByKind(t *testing.T) {
	for want, err := range map[dialError]error{
		dialDNS:     &exchange.Error{Err: &net.DNSError{Err: "timeout", IsTimeout: true}},
		dialRefused: errRefused,
		dialTimeout: &exchange.Error{Outcome: exchange.TLSFailed, Err: timeoutError{}},
		dialALPN:    &exchange.Error{Outcome: exchange.TLSFailed, Err: exchange.ErrALPN},
		dialLocal:   &exchange.Error{Outcome: exchange.LocalError, Err: &net.DNSError{Err: "socket: too many open files"}},
		dialTLS:     &exchange.Error{Outcome: exchange.TLSFailed},
		dialOther:   &exchange.Error{Outcome: exchange.ConnectFailed},
	} {
		got := dialErrorKind(err)
		testsupport.True(t, got == want, "%v is of kind %s, want %s", err, dialErrorNames[got], dialErrorNames[want])
	}
}

type timeoutError struct{}

func (timeoutError) Error() string { return "i/o timeout" }
func (timeoutError) Timeout() bool { return true }
