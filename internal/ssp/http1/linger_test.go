package http1

import (
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// The oldest response may delay later ones for the time linger, counted from the abandoning of its
// request and not from its deadline. TestOverdueResponseTakesNoRequestsBehindIt shows that for
// deadlines and cancelled requests; here the response is over the budget.
func TestPipelineIsClosedAfterLingerOfItsOldestAbandonedRequest(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		m := newSim(t, pipelined, with(func(o *Options) { o.Linger = simLinger }))
		defer m.s.Release()
		m.exchange(time.Minute, 0)
		oldest := m.begin(time.Minute, func(ex *exchange.Exchange) { ex.Budget = exchange.NewBudget(9) })
		behind := m.begin(2*time.Minute, nil)
		m.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n0123456789")
		testsupport.MustTrue(t, !oldest.at.IsZero() && exchange.AsError(oldest.err).Outcome == exchange.Overloaded, "error %v, want %v", oldest.err, exchange.Overloaded)
		time.Sleep(simLinger - tick)
		synctest.Wait()
		wantReason(t, m.conn, exchange.NotClosed)
		time.Sleep(2 * tick)
		synctest.Wait()
		wantReason(t, m.conn, exchange.ClosedTimeout)
		testsupport.MustTrue(t, behind.at.IsZero(), "the exchange behind it ended with %v", behind.err)
		m.s.End()
		m.close()
	})
}
