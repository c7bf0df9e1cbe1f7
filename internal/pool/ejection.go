package pool

import (
	"sync/atomic"
	"time"

	"adbuffer/internal/rates"
	"adbuffer/internal/upstream"
)

// EjectionOptions say when an endpoint that fails gets no requests for a while.
type EjectionOptions struct {
	Enabled           bool
	Window            time.Duration
	MinRequests       int
	FailureRatio      float64
	BaseTime, MaxTime time.Duration
	Consecutive       int     // failures in a row that eject; 0 = off
	MaxEjected        float64 // share of the endpoints
	DryRun            bool
}

// most returns how many of n endpoints may be ejected at once.
func (o *EjectionOptions) most(n int) int {
	const tiny = 1e-9 // 0.58 of 50 are 28.999…
	return min(max(int(o.MaxEjected*float64(n)+tiny), 1), n-1)
}

// Verdict is what an attempt says about its endpoint.
type Verdict uint8

// The verdicts.
const (
	Neutral Verdict = iota
	Success
	Failure
)

// health counts an endpoint's failures. It is atomic: each request changes it.
type health struct {
	window rates.Window
	inARow atomic.Int32
}

// record counts an attempt, and reports whether the endpoint should be ejected.
func (h *health) record(o *EjectionOptions, failed bool, now time.Duration) bool {
	h.window.Record(now, failed)
	if !failed {
		if h.inARow.Load() != 0 {
			h.inARow.Store(0)
		}
		return false
	}
	if row := h.inARow.Add(1); o.Consecutive > 0 && int(row) >= o.Consecutive {
		return true
	}
	requests, failures := h.window.Tally()
	return requests >= uint64(o.MinRequests) && float64(failures) >= o.FailureRatio*float64(requests)
}

func (h *health) clear() {
	h.window.Clear()
	h.inARow.Store(0)
}

// ejection is whether an endpoint is ejected, and what follows. Guarded by Pool.mu.
//
//	enabled ──▶ ejected until a time ──▶ a dial ──▶ one request, the probe ──▶ enabled
//	                   ▲                   │                │
//	                   └───────────────────┴── fails ───────┘
type ejection struct {
	ejected  bool
	until    time.Time     // in a dry run: when it would come back
	lasts    time.Duration // the last ejection
	inARow   int           // ejections, the last one included
	returned time.Time     // when it came back; zero = slow_start does not apply
	probe    probe
	probed   time.Time // when the probe was sent
}

// probeLimit is how long a probe may take: longer than any deadline. A probe whose request panicked
// never reports its end; it must not keep the endpoint ejected forever.
const probeLimit = 11 * time.Minute

type probe uint8

const (
	noProbe    probe = iota
	probeDials       // a connection is being opened
	probeReady       // the next request is the probe
	probeSent
)

func (e *ejection) probing() bool { return e.probe != noProbe }

// end is called when a setting ends the ejection, or that of a dry run. The next one may begin at
// once.
func (e *ejection) end(now time.Time) {
	e.ejected, e.probe = false, noProbe
	if e.until.After(now) {
		e.until = now
	}
}

// inherit makes e ejected if it was so in the pool before. The probe is due at once, because the new
// pool's settings may have repaired the endpoint.
func (e *ejection) inherit(before ejection, now time.Time) {
	if before.ejected && !e.ejected {
		e.ejected, e.until, e.lasts, e.inARow, e.probe = true, now, before.lasts, before.inARow, noProbe
	}
}

// begin ejects for the next time, which grows with each ejection in a row. A row ends when the
// endpoint has worked for as long as it was ejected, and for a window.
func (e *ejection) begin(o *EjectionOptions, now time.Time) {
	if healthy := now.Sub(e.until); e.inARow > 0 && healthy >= max(e.lasts, o.Window) {
		e.inARow = 0
	}
	e.inARow++
	e.lasts = o.MaxTime
	if n := time.Duration(e.inARow); n <= o.MaxTime/max(o.BaseTime, 1) {
		e.lasts = n * o.BaseTime
	}
	e.until = now.Add(e.lasts)
	e.probe = noProbe
}

// started returns how far an endpoint that came back is: 10 once it gets its full share.
func (e *ejection) started(slowStart time.Duration, now time.Time) int {
	if e.returned.IsZero() || slowStart <= 0 || now.Sub(e.returned) >= slowStart {
		return 10
	}
	return max(1, int(10*now.Sub(e.returned)/slowStart))
}

// Event is a change of an endpoint's state that no operator made.
type Event struct {
	Endpoint string
	Ejected  bool // else it came back
	DryRun   bool // it would have been ejected
	// Of an ejection: how long it lasts, how many there were in a row, and what led to it.
	Lasts              time.Duration
	InARow             int
	Requests, Failures uint64 // in the window
	FailuresInARow     int
}

// Ended notes how an attempt on the place ended, after Do, and what that says about the endpoint.
func (pl Place) Ended(o upstream.Outcome, v Verdict, t *upstream.Times) {
	m := pl.m
	m.ep.stats.ended(o, t.Done.Sub(t.Acquired))
	if pl.probe {
		m.pool.probeEnded(m, v)
		return
	}
	p := m.pool
	if o := p.ejection.Load(); o != nil && v != Neutral && m.ep.health.record(o, v == Failure, t.Done.Sub(p.made)) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ejectLocked(m.ep, t.Done)
	}
}

// failedDialLocked counts a failed dial to e like a failed attempt.
func (p *Pool) failedDialLocked(e *endpoint, now time.Time) {
	if o := p.ejection.Load(); o != nil && !e.ejected && e.health.record(o, true, now.Sub(p.made)) {
		p.ejectLocked(e, now)
	}
}

// ejectLocked ejects e, unless it is ejected already, or too many endpoints are.
func (p *Pool) ejectLocked(e *endpoint, now time.Time) {
	s, o := &p.conns.endpoints, &p.opts.Ejection
	if p.closed || !o.Enabled || e.ejected || e.gone || now.Before(e.until) {
		return
	}
	if s.count(func(e *endpoint) bool { return e.ejected }) >= o.most(len(s.all)) {
		return
	}
	event := Event{Endpoint: e.name, Ejected: true, DryRun: o.DryRun, FailuresInARow: int(e.health.inARow.Load())}
	event.Requests, event.Failures = e.health.window.Tally()
	e.begin(o, now)
	event.Lasts, event.InARow = e.lasts, e.inARow
	e.stats.ejections.Add(1)
	e.health.clear()
	p.tellLocked(event)
	if !o.DryRun {
		e.ejected = true
		p.outLocked(e, now)
	}
}

// outLocked is called when e is ejected: its connections close, and its share goes to the other
// endpoints.
func (p *Pool) outLocked(e *endpoint, now time.Time) {
	p.rebuildLocked(now)
	if e.barred {
		p.conns.drainEndpoint(e, closedMoved)
	}
	p.serveLocked(now)
}

// probeEnded notes how the first request after an ejection ended.
func (p *Pool) probeEnded(m *member, v Verdict) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	e := m.ep
	switch {
	case e.probe != probeSent:
	case v == Success:
		p.backLocked(e, now)
	case v == Failure:
		e.probeFailed(now)
		if e.barred { // else it is all that serves
			p.conns.drainEndpoint(e, closedMoved)
		}
		p.reviveLocked(now)
	default:
		p.probeAgainLocked(e)
	}
}

// probeAgainLocked lets the next request be the probe, if the connection is still there.
func (p *Pool) probeAgainLocked(e *endpoint) {
	if e.probe = noProbe; e.open > 0 {
		e.probe = probeReady
		p.conns.probes = append(p.conns.probes, e)
	}
}

// probeFailed prolongs the ejection by the same time. It does not grow: a long outage would else
// keep a repaired endpoint out for minutes, and a probe costs one request.
func (e *ejection) probeFailed(now time.Time) {
	e.until, e.probe = now.Add(e.lasts), noProbe
}

// backLocked lets e take requests again.
func (p *Pool) backLocked(e *endpoint, now time.Time) {
	e.ejected, e.probe, e.until, e.returned = false, noProbe, now, now
	e.health.clear()
	p.tellLocked(Event{Endpoint: e.name})
	p.rebuildLocked(now)
	p.growLocked(now)
}

func (p *Pool) tellLocked(ev Event) {
	if tell := p.opts.Events; tell != nil && !p.closed {
		p.wg.Go(func() { tell(ev) })
	}
}
