package http1

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// wantPlaces checks the places of an open connection.
func wantPlaces(t *testing.T, m *sim, places int) {
	t.Helper()
	testsupport.MustEqual(t, m.conn.CloseReason(), exchange.NotClosed, "the connection was closed: %v")
	testsupport.MustEqual(t, m.conn.Places(), places, "%d places")
}

// wantElsewhere checks that the exchange has ended as one that is sent on another connection.
func wantElsewhere(t *testing.T, c *call) {
	t.Helper()
	testsupport.MustTrue(t, !c.at.IsZero(), "a request that was not sent waits behind an overdue response")
	e := exchange.AsError(c.err)
	testsupport.True(t, e.Outcome == exchange.ConnLost && e.Progress == exchange.NotSent && c.ex.Reused, "error %v, progress %v, reused %v; want one that is retried", e, e.Progress, c.ex.Reused)
}

// A request behind a response that does not come waits until its deadline. So the connection takes
// no requests once its oldest request is abandoned and the SSP has had its usual time. Clients that
// leave early, or state short deadlines, do not keep requests away from a healthy connection.
func TestOverdueResponseTakesNoRequestsBehindIt(t *testing.T) {
	const linger, usual = 2 * time.Second, time.Second
	for name, c := range map[string]struct {
		deadline, cancelled time.Duration // 0: not cancelled
		overdue             time.Duration
	}{
		"deadline":        {deadline: usual, overdue: usual},
		"long deadline":   {deadline: 2 * usual, overdue: 2 * usual},
		"short deadline":  {deadline: usual / 10, overdue: usual},
		"cancelled early": {deadline: usual, cancelled: usual / 10, overdue: usual},
		"cancelled late":  {deadline: 3 * usual, cancelled: 2 * usual, overdue: 2 * usual},
	} {
		for _, arrives := range []string{"within linger", "after linger", "never"} {
			testsupport.RunBubble(t, name+"/"+arrives, func(t *testing.T) {
				opts := testOptions()
				opts.Linger = linger
				m := newSim(t, pipelined, opts)
				defer m.s.Release()
				m.exchange(time.Minute, 0)
				_, changed := m.owner.counts()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				begin := time.Now()
				oldest := m.begin(c.deadline, func(ex *exchange.Exchange) { ex.Context, ex.UsualTimeout = ctx, usual })
				abandoned := begin.Add(c.deadline)
				if c.cancelled > 0 {
					abandoned = begin.Add(c.cancelled)
					time.AfterFunc(c.cancelled, cancel)
				}
				behind := m.begin(time.Minute, nil)

				time.Sleep(time.Until(begin.Add(c.overdue - 1)))
				synctest.Wait()
				wantPlaces(t, m, opts.Depth)
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				wantPlaces(t, m, 0)
				testsupport.True(t, oldest.at.Equal(abandoned), "the request was abandoned after %v", oldest.at.Sub(begin))
				_, now := m.owner.counts()
				testsupport.True(t, now == changed+1, "the owner was called %d times, want once", now-changed)
				wantElsewhere(t, m.begin(time.Minute, nil)) // it had its place before
				m.s.Take()
				testsupport.MustTrue(t, behind.at.IsZero(), "the sent request behind it ended with %v", behind.err)
				if arrives != "within linger" {
					time.Sleep(time.Until(abandoned.Add(linger - 1)))
					synctest.Wait()
					wantPlaces(t, m, 0)
					time.Sleep(time.Nanosecond)
					synctest.Wait()
					wantReason(t, m.conn, exchange.ClosedTimeout)
					c := m.begin(time.Minute, nil)
					testsupport.True(t, exchange.AsError(c.err).Progress == exchange.NotSent, "a request on the closing connection got %v", c.err)
					_, now := m.owner.counts()
					testsupport.True(t, now == changed+2, "the owner was called %d times, want twice", now-changed)
					if arrives == "after linger" {
						m.send(textResponse("old"))
						m.send(textResponse("behind"))
						m.wantBody(behind, time.Now(), 200, "behind")
						testsupport.True(t, m.s.Closed(), "the connection is open although no caller waits")
					} else { // the sent request behind it still waits until its deadline
						time.Sleep(time.Minute)
						synctest.Wait()
						testsupport.True(t, behind.err == exchange.ErrDeadline && behind.at.Equal(begin.Add(time.Minute)), "it ended with %v after %v", behind.err, behind.at.Sub(begin))
					}
					m.close()
					return
				}
				m.send(textResponse("old"))
				wantPlaces(t, m, opts.Depth)
				m.send(textResponse("behind"))
				m.wantBody(behind, time.Now(), 200, "behind")
				m.exchange(time.Second, 0)
				m.close()
			})
		}
	}
}

// A response that comes within the usual time is never overdue, whatever its client did, and neither
// is one whose request still waits.
func TestResponseIsNotOverdueWhileItsRequestWaitsOrItIsUsual(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		opts := testOptions()
		opts.Linger = time.Minute
		m := newSim(t, pipelined, opts)
		defer m.s.Release()
		m.exchange(time.Minute, 0)
		_, changed := m.owner.counts()
		for range 20 {
			m.begin(tick, func(ex *exchange.Exchange) { ex.UsualTimeout = 10 * tick })
			patient := m.begin(time.Minute, func(ex *exchange.Exchange) { ex.UsualTimeout = tick })
			time.Sleep(9 * tick)
			m.send(textResponse("abandoned"))
			time.Sleep(30 * tick)
			synctest.Wait()
			wantPlaces(t, m, opts.Depth)
			m.send(textResponse("patient"))
			m.wantBody(patient, time.Now(), 200, "patient")
		}
		_, now := m.owner.counts()
		testsupport.True(t, now == changed, "the owner was called %d times", now-changed)
		m.close()
	})
}

// The next response may be overdue as well when an overdue one arrives.
func TestEachOverdueResponseTakesNoRequestsBehindIt(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		opts := testOptions()
		m := newSim(t, pipelined, opts)
		defer m.s.Release()
		m.exchange(time.Minute, 0)
		for i := range 2 {
			m.begin(time.Duration(1+i)*time.Second, func(ex *exchange.Exchange) { ex.UsualTimeout = 0 })
		}
		time.Sleep(time.Second)
		synctest.Wait()
		wantPlaces(t, m, 0)
		m.send(textResponse("first"))
		wantPlaces(t, m, opts.Depth)
		time.Sleep(time.Second)
		synctest.Wait()
		wantPlaces(t, m, 0)

		m.send(textResponse("second"))
		wantPlaces(t, m, opts.Depth)
		for range 2 {
			m.begin(time.Second, func(ex *exchange.Exchange) { ex.UsualTimeout = 0 })
		}
		time.Sleep(time.Second)
		synctest.Wait()
		m.send(textResponse("third"))
		wantPlaces(t, m, 0)
		m.send(textResponse("fourth"))
		wantPlaces(t, m, opts.Depth)
		m.exchange(time.Second, 0)
		m.close()
	})
}

// Requests that wait for a new connection's first response are sent on another connection once the response is
// overdue, and not only after linger.
func TestRequestsThatWaitForAnOverdueFirstResponseAreSentElsewhere(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		m := newSim(t, pipelined, testOptions())
		defer m.s.Release()
		overdue := time.Now().Add(time.Second)
		m.begin(time.Second, func(ex *exchange.Exchange) { ex.UsualTimeout = time.Second })
		waiting := []*call{m.begin(time.Minute, nil), m.begin(time.Minute, nil)}
		time.Sleep(time.Second)
		synctest.Wait()
		for _, c := range waiting {
			wantElsewhere(t, c)
			testsupport.True(t, c.at.Equal(overdue), "it ended %v too late", c.at.Sub(overdue))
		}
		wantPlaces(t, m, 0)
		m.send(textResponse("late"))
		wantPlaces(t, m, testOptions().Depth)
		next := m.begin(time.Second, nil)
		got := m.s.Take()
		testsupport.True(t, strings.Count(got, "GET ") == 2, "the SSP got the requests %q, want the first and the last", got)
		m.send(textResponse("next"))
		m.wantBody(next, time.Now(), 200, "next")
		m.close()
	})
}
