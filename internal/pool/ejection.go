package pool

import (
	"time"

	"adbuffer/internal/rates"
	"adbuffer/internal/upstream"
)

// EjectionOptions say when a failing endpoint gets no requests for a while.
type EjectionOptions struct {
	Enabled           bool
	Window            time.Duration
	MinRequests       int
	FailureRatio      float64
	BaseTime, MaxTime time.Duration
	Consecutive       int     // failures in a row that eject; 0 = off
	MaxEjected        float64 // share of the endpoints of one priority
	DryRun            bool
}

// most returns how many of n endpoints of one priority may be out at the same time, unless an
// endpoint of another priority can serve.
func (o *EjectionOptions) most(n int) int {
	const tiny = 1e-9 // 0.58 * 50 is 28.999…
	return min(max(int(o.MaxEjected*float64(n)+tiny), 1), n-1)
}

// health counts an endpoint's failures. Its fields are atomic because each request changes them.
type health struct {
	window rates.Window
	row    rates.Row
}

// record counts an attempt for a client of group g, and reports whether the endpoint should be ejected.
func (h *health) record(o *EjectionOptions, g rates.Group, failed bool, now time.Duration) bool {
	h.window.Record(now, g, failed)
	if !failed {
		h.row.End()
		return false
	}
	if row := h.row.Failed(g); o.Consecutive > 0 && row >= o.Consecutive && h.rowCounts(o) {
		return true
	}
	ratio := h.window.Ratio(o.FailureRatio, o.MinRequests)
	return ratio > 0 && ratio >= o.FailureRatio
}

// rowCounts reports whether failures in a row eject: most groups of clients took part, or as many as
// the row needs failures, or the other groups have too few requests to show that the endpoint works.
func (h *health) rowCounts(o *EjectionOptions) bool {
	failed := h.row.Groups()
	all, others := h.window.Others(failed)
	return others < uint64(o.MinRequests) || failed.Most(all, 0.5, max(o.Consecutive, 2))
}

func (h *health) clear() {
	h.window.Clear()
	h.row.End()
}

// ejection holds whether an endpoint is ejected, and the steps of its return. Guarded by Pool.mu.
//
// With health checks, the probe is a check instead of a dial and a request.
//
//	enabled ──▶ ejected until a time ──▶ a dial ──▶ one request, the probe ──▶ enabled
//	                   ▲                   │                │
//	                   └───────────────────┴── fails ───────┘
type ejection struct {
	ejected  bool
	until    time.Time     // in a dry run: when the endpoint would return
	lasts    time.Duration // duration of the last ejection
	inARow   int           // ejections in a row, including the last one
	returned time.Time     // when the endpoint returned; zero = slow_start does not apply
	probe    probe
	probed   time.Time // when the probe, or the dial for it, began
}

// probeLimit is how long a probe may take. It is longer than any deadline. A probe whose request
// panicked never reports its end, and must not keep the endpoint ejected forever.
const probeLimit = 11 * time.Minute

type probe uint8

const (
	noProbe    probe = iota
	probeDials       // the pool opens a connection
	probeReady       // the next request is the probe
	probeSent
	probeIsCheck // the next health check is the probe
)

// probing reports whether a connection of the pool is for the probe.
func (e *ejection) probing() bool { return e.probe != noProbe && e.probe != probeIsCheck }

// end ends the ejection, or the dry run of one, because a setting changed. The next ejection may
// begin at once.
func (e *ejection) end(now time.Time) {
	e.ejected, e.probe = false, noProbe
	if e.until.After(now) {
		e.until = now
	}
}

// inherit ejects e if the pool before had ejected it. The probe is due at once, because the new
// settings may have repaired the endpoint.
func (e *ejection) inherit(before ejection, now time.Time) {
	if before.ejected && !e.ejected {
		e.ejected, e.until, e.lasts, e.inARow, e.probe = true, now, before.lasts, before.inARow, noProbe
	}
}

// begin ejects the endpoint. Each ejection in a row lasts longer. A row ends once the endpoint has
// worked for as long as its last ejection, and for at least a window.
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

// started returns how far a returned endpoint is in its slow start. 10 means its full share.
func (e *ejection) started(slowStart time.Duration, now time.Time) int {
	if e.returned.IsZero() || slowStart <= 0 || now.Sub(e.returned) >= slowStart {
		return 10
	}
	return max(1, int(10*now.Sub(e.returned)/slowStart))
}

// Event is a change of an endpoint's state that no operator made.
type Event struct {
	Endpoint string
	// Check is set if health checks caused the event. Then Err is the error of the last check, and
	// the other fields are not set.
	Check   CheckChange
	Err     error
	Ejected bool // false: the endpoint returned
	DryRun  bool // ejection.dry_run is set: the endpoint was not ejected
	// For an ejection: its duration, the number of ejections in a row, and the counts that caused
	// it.
	Lasts              time.Duration
	InARow             int
	Requests, Failures uint64 // in the window
	FailuresInARow     int
}

// Ended records how an attempt on the place ended, after Do, and its result for the endpoint. client
// is the group of the client that sent the request. Ended reports whether the attempt failed at an
// endpoint that is out while others serve. Such a failure says nothing about the endpoints that get
// the requests.
func (pl Place) Ended(o upstream.Outcome, result upstream.Result, client rates.Group, t *upstream.Times) (aside bool) {
	m := pl.m
	m.ep.stats.ended(o, t.Done.Sub(t.Acquired))
	if pl.probe {
		m.pool.probeEnded(m, result)
	} else {
		m.pool.attemptEnded(m.ep, result, client, t.Done)
	}
	return result == upstream.Failure && m.ep.aside.Load()
}

// attemptEnded records the result of an attempt that was no probe, and ejects e if it fails too often.
func (p *Pool) attemptEnded(e *endpoint, result upstream.Result, client rates.Group, now time.Time) {
	if o := p.ejection.Load(); o != nil && result != upstream.Neutral && e.health.record(o, client, result == upstream.Failure, now.Sub(p.made)) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ejectLocked(e, now)
	}
}

// failedDialLocked counts a failed dial to e like a failed attempt.
func (p *Pool) failedDialLocked(e *endpoint, now time.Time) {
	if o := p.ejection.Load(); o != nil && !e.ejected && e.health.record(o, rates.Ours, true, now.Sub(p.made)) {
		p.ejectLocked(e, now)
	}
}

// ejectLocked ejects e, unless it is out already or too many endpoints are.
func (p *Pool) ejectLocked(e *endpoint, now time.Time) {
	s, o := &p.conns.endpoints, &p.opts.Ejection
	if p.closed || !o.Enabled || e.out() || e.gone || now.Before(e.until) || !s.mayGoOut(e, o) {
		return
	}
	event := Event{Endpoint: e.name, Ejected: true, DryRun: o.DryRun, FailuresInARow: e.health.row.Length()}
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

// outLocked applies the ejection of e: its connections close, and the other endpoints get its
// share.
func (p *Pool) outLocked(e *endpoint, now time.Time) {
	p.rebuildLocked(now)
	if e.barred {
		p.conns.drainEndpoint(e)
	}
	p.serveLocked(now)
}

// probeEnded records how the first request after an ejection ended.
func (p *Pool) probeEnded(m *member, result upstream.Result) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	e := m.ep
	switch {
	case e.probe != probeSent:
	case result == upstream.Success:
		p.backLocked(e, now)
	case result == upstream.Failure:
		e.probeFailed(now)
		if e.barred { // if not, e is the only endpoint left, and serves although it is ejected
			p.conns.drainEndpoint(e)
		}
		p.reviveLocked(now)
	default:
		p.probeAgainLocked(e)
	}
}

// probeAgainLocked makes the next request the probe if the connection is still open.
func (p *Pool) probeAgainLocked(e *endpoint) {
	if e.probe = noProbe; e.open > 0 {
		e.probe = probeReady
		p.conns.probes = append(p.conns.probes, e)
	}
}

// probeFailed repeats the ejection with the same duration. The duration does not grow: otherwise a
// long outage would keep a repaired endpoint out for minutes. A probe costs only one request.
//
// The duration counts from the start of the probe. A probe that hangs until its deadline does not
// delay the next one, so a repaired endpoint is back within the duration.
func (e *ejection) probeFailed(now time.Time) {
	e.until, e.probe = e.probed.Add(e.lasts), noProbe
	if e.until.Before(now) {
		e.until = now
	}
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
