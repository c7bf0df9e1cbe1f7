package route

import (
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
)

// Mirror sends a copy of a share of a route's requests to another SSP. No request waits for it, and
// clients never see its responses. Under load the mirror's requests are dropped first: at most a quarter of
// server.max_in_flight are in flight, and none is sent that would leave less than a quarter for clients' requests. Their
// memory counts in a budget of the mirror. An SSP that does not respond gets single probes only.
type Mirror struct {
	SSP   *ssp.SSP
	Share float64 // 0 to 1
	// Budget bounds the copies and the responses.
	Budget *exchange.Budget
	Stats  *MirrorStats

	target Target // with the conditions of SSP
}

// MirrorStats counts mirrored requests. A reload keeps it.
type MirrorStats struct {
	outcomes [exchange.Outcomes]atomic.Uint64
	dropped  atomic.Uint64
	inFlight atomic.Int64
	silence  silence
}

// mirrored is one mirrored request; reused.
type mirrored struct {
	mirror  *Mirror
	process *Process
	request ssp.Request
	memory  requestCopy
	run     func() // main; kept, so that starting it allocates nothing
}

var mirroredPool = sync.Pool{New: func() any { return new(mirrored) }}

// Target returns the mirror's SSP with its conditions.
func (m *Mirror) Target() *Target { return &m.target }

// send sends a copy of r if the share selects r and no limit prevents it.
func (m *Mirror) send(r *ssp.Request, p *Process) {
	if rand.Float64() >= m.Share {
		return
	}
	if !m.target.conditionsHold(r, true) {
		m.SSP.Refused(exchange.Filtered)
		m.Stats.outcomes[exchange.Filtered].Add(1)
		return
	}
	if !canEdit(m.SSP, r) || m.Stats.silence.drops(r.Received, m.Stats.inFlight.Load()) {
		m.Stats.dropped.Add(1)
		return
	}
	if n := int(m.Stats.inFlight.Add(1)); !m.fits(n, p.InFlight) || !m.Budget.Reserve(copySize(r)) {
		m.Stats.inFlight.Add(-1)
		m.Stats.dropped.Add(1)
		return
	}
	c := mirroredPool.Get().(*mirrored)
	c.mirror, c.process, c.request = m, p, *r
	c.request.Budget, c.request.Held, c.request.Gone, c.request.Context, c.request.Facts = m.Budget, 0, nil, nil, nil
	c.memory.take(&c.request)
	if c.run == nil {
		c.run = c.main
	}
	go c.run()
}

// fits reports whether the limit on requests in flight allows the n-th mirrored request.
func (m *Mirror) fits(n int, f *ssp.InFlight) bool {
	limit := f.Limit()
	return limit <= 0 || n <= max(1, limit/4) && f.Now()+n <= max(1, limit-limit/4)
}

func (c *mirrored) main() {
	m := c.mirror
	defer m.Stats.inFlight.Add(-1)
	defer func() {
		if v := recover(); v != nil { // a connection may still use c: the garbage collector frees it
			m.Budget.Release(c.memory.reserved)
			m.Stats.outcomes[exchange.Internal].Add(1)
			c.process.Panicked(v, debug.Stack())
		}
	}()
	ex := exchange.AcquireExchange()
	outcome, _ := m.SSP.Do(&c.request, ex, 0)
	if outcome != exchange.Deadline || m.SSP.HadUsualTime(ex) {
		m.Stats.silence.observe(outcome)
	}
	ex.Release()
	c.release()
	if outcome.Row().Mirror == exchange.Dropped {
		m.Stats.dropped.Add(1)
	} else {
		m.Stats.outcomes[outcome].Add(1)
	}
}

func (c *mirrored) release() {
	c.memory.release(c.request.Budget)
	c.mirror, c.process, c.request = nil, nil, ssp.Request{}
	mirroredPool.Put(c)
}
