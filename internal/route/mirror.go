package route

import (
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/metrics"
	"adbuffer/internal/ssp"
	"adbuffer/internal/upstream"
)

// Mirror sends a copy of a share of a route's requests to another SSP. No request waits for it, and
// clients never see its responses. Under load the mirror's requests are dropped first. It has its
// own budget, takes at most a quarter of max_in_flight, and takes none of the last quarter. An
// SSP that does not respond gets single probes only.
type Mirror struct {
	SSP   *ssp.SSP
	Share float64 // 0 to 1
	// Budget bounds the copies and the responses.
	Budget *upstream.Budget
	Stats  *MirrorStats
}

// MirrorStats counts mirrored requests. A reload keeps it.
type MirrorStats struct {
	outcomes [upstream.Outcomes]atomic.Uint64
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

// send sends a copy of r if the share selects r and no limit prevents it.
func (m *Mirror) send(r *ssp.Request, p *Process) {
	if rand.Float64() >= m.Share {
		return
	}
	if m.Stats.silence.drops(r.Received, m.Stats.inFlight.Load()) {
		m.Stats.dropped.Add(1)
		return
	}
	if n := int(m.Stats.inFlight.Add(1)); !m.fits(n, p.InFlight) {
		m.drop()
		return
	}
	c := mirroredPool.Get().(*mirrored)
	c.mirror, c.process, c.request = m, p, *r
	c.request.Budget, c.request.Gone, c.request.Context = m.Budget, nil, nil
	if !c.memory.take(&c.request) {
		c.release()
		m.drop()
		return
	}
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

func (m *Mirror) drop() {
	m.Stats.inFlight.Add(-1)
	m.Stats.dropped.Add(1)
}

func (c *mirrored) main() {
	m := c.mirror
	defer m.Stats.inFlight.Add(-1)
	defer func() {
		if v := recover(); v != nil { // a connection may still use c: the garbage collector frees it
			m.Stats.outcomes[upstream.Internal].Add(1)
			c.process.Panicked(v, debug.Stack())
		}
	}()
	ex := upstream.AcquireExchange()
	outcome, _ := m.SSP.Do(&c.request, ex, 0)
	ex.Release()
	c.release()
	m.Stats.silence.ended(outcome)
	switch outcome {
	case upstream.PendingFull, upstream.PendingTimeout, upstream.QPSLimit, upstream.Overloaded:
		m.Stats.dropped.Add(1)
	default:
		m.Stats.outcomes[outcome].Add(1)
	}
}

func (c *mirrored) release() {
	c.memory.release(c.request.Budget)
	c.mirror, c.process, c.request = nil, nil, ssp.Request{}
	mirroredPool.Put(c)
}

// silence drops copies for a mirror's SSP that does not respond. Such a copy costs a dial or a
// wait, and shows nothing new. After silentAfter copies in a row without a response, only
// probes are sent: one at a time, and one each probeEvery. A response ends the silence. It is safe
// for concurrent use.
type silence struct {
	inARow atomic.Int32              // copies without a response
	next   atomic.Pointer[time.Time] // when the next probe may be sent; nil = now
}

const (
	silentAfter = 5
	probeEvery  = 100 * time.Millisecond
)

// drops reports whether a copy is dropped. inFlight is the number of copies under way.
func (s *silence) drops(now time.Time, inFlight int64) bool {
	if s.inARow.Load() < silentAfter {
		return false
	}
	next := s.next.Load()
	if inFlight > 0 || next != nil && now.Before(*next) {
		return true
	}
	after := now.Add(probeEvery)
	return !s.next.CompareAndSwap(next, &after)
}

// ended notes how a copy ended. An outcome that adbuffer decided without the SSP changes nothing.
func (s *silence) ended(o upstream.Outcome) {
	switch o {
	case upstream.Fill, upstream.NoBid, upstream.Redirect, upstream.ClientError, upstream.ServerError, upstream.BadResponse, upstream.ResponseTooLarge:
		if s.inARow.Load() != 0 {
			s.inARow.Store(0)
		}
	case upstream.ConnectFailed, upstream.TLSFailed, upstream.ConnLost, upstream.Deadline, upstream.PendingTimeout:
		if s.inARow.Load() < silentAfter {
			s.inARow.Add(1)
		}
	}
}

var (
	descs        metrics.Descs
	descMirrored = descs.New("adbuffer_mirrored_total",
		"Copies of a route's requests for its mirror SSP, by how they ended; dropped: a limit prevented the copy, or the SSP did not respond to the last 5 copies.", "route", "ssp", "outcome")
)

// mirrorOutcomes are the possible outcomes of a mirrored request, in addition to dropped.
var mirrorOutcomes = []upstream.Outcome{
	upstream.Fill, upstream.NoBid, upstream.Redirect, upstream.ClientError, upstream.ServerError, upstream.BreakerOpen, upstream.SSPBackoff,
	upstream.SSPDisabled, upstream.Draining, upstream.ConnectFailed, upstream.TLSFailed, upstream.ConnLost, upstream.BadResponse,
	upstream.ResponseTooLarge, upstream.Deadline, upstream.Internal,
}

// NewMirrorCollector returns a collector of the counts of the mirrors in the table that table
// returns at each scrape.
func NewMirrorCollector(table func() *Table) prometheus.Collector {
	return metrics.NewSource(descs, func(to metrics.Sink) {
		for _, r := range table().Routes {
			m := r.Mirror
			if m == nil {
				continue
			}
			to := to.With(r.Name, m.SSP.Name())
			for _, o := range mirrorOutcomes {
				to.Counter(descMirrored, m.Stats.outcomes[o].Load(), o.String())
			}
			to.Counter(descMirrored, m.Stats.dropped.Load(), "dropped")
		}
	})
}
