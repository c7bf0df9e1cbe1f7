package http1

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

// The oldest response may delay later ones for the time linger, counted from the abandoning of its
// request and not from its deadline.
func TestPipelineIsClosedAfterLingerOfItsOldestAbandonedRequest(t *testing.T) {
	for name, c := range map[string]struct {
		budget time.Duration
		leave  func(m *sim, c *call, cancel func())
		want   upstream.Outcome
	}{
		"deadline": {time.Second, func(*sim, *call, func()) { time.Sleep(time.Second) }, upstream.Deadline},
		"cancelled": {time.Minute, func(_ *sim, _ *call, cancel func()) {
			time.Sleep(time.Second)
			cancel()
		}, upstream.Cancelled},
		"over the budget": {time.Minute, func(m *sim, _ *call, _ func()) {
			m.s.Arrive("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n0123456789")
		}, upstream.Overloaded},
	} {
		testsupport.RunBubble(t, name, func(t *testing.T) {
			opts := testOptions()
			opts.Linger = simLinger
			m := newSim(t, pipelined, opts)
			defer m.s.Release()
			m.exchange(time.Minute, 0)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			oldest := m.begin(c.budget, func(ex *upstream.Exchange) { ex.Context, ex.Budget = ctx, upstream.NewBudget(9) })
			behind := m.begin(2*time.Minute, nil)
			c.leave(m, oldest, cancel)
			synctest.Wait()
			if oldest.at.IsZero() || upstream.AsError(oldest.err).Outcome != c.want {
				t.Fatalf("error %v, want %v", oldest.err, c.want)
			}
			time.Sleep(simLinger - tick)
			synctest.Wait()
			wantReason(t, m.conn, upstream.NotClosed)
			time.Sleep(2 * tick)
			synctest.Wait()
			wantReason(t, m.conn, upstream.ClosedTimeout)
			if !behind.at.IsZero() {
				t.Fatalf("the exchange behind it ended with %v", behind.err)
			}
			m.s.End()
			m.close()
		})
	}
}
