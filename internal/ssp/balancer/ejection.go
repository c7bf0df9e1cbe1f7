package balancer

import (
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/wire/exchange"
)

// Ejection says when a failing endpoint is ejected: it gets no requests for some time. Package config explains the
// tags.
type Ejection struct {
	Enabled      bool          `yaml:"enabled" default:"true"`
	Window       time.Duration `yaml:"window" default:"10s" min:"100ms" max:"10m"`
	MinRequests  int           `yaml:"min_requests" default:"20" min:"1" max:"10000000"` // number of requests in the window from which on the ratio can eject
	FailureRatio float64       `yaml:"failure_ratio" default:"0.5" min:"0.01" max:"1"`
	BaseTime     time.Duration `yaml:"base_time" default:"5s" min:"10ms" max:"1h" at_most:"max_time"` // duration of the first ejection; the n-th ejection in a row lasts n times as long
	MaxTime      time.Duration `yaml:"max_time" default:"5m" min:"10ms" max:"24h"`
	Consecutive  int           `yaml:"consecutive" default:"5" min:"0" max:"1000000"` // failures in a row that eject; 0 = only the ratio ejects
	MaxEjected   float64       `yaml:"max_ejected" default:"0.5" min:"0" max:"1"`     // share of the endpoints of one priority that may be out
	DryRun       bool          `yaml:"dry_run"`                                       // report ejections, but eject nothing
}

// maxOut returns how many of the n endpoints of one priority may be out at the same time while no endpoint of another
// priority can serve.
func (o *Ejection) maxOut(n int) int {
	const tiny = 1e-9 // 0.58 * 50 is 28.999…
	return min(max(int(o.MaxEjected*float64(n)+tiny), 1), n-1)
}

// failures counts an endpoint's failures. Its fields are atomic because each request changes them.
type failures struct {
	window rates.Window
	row    rates.Row
}

// record counts an attempt for a client of group g. It reports whether the endpoint fails too often.
func (f *failures) record(o *Ejection, g rates.Group, failed bool, now time.Duration) bool {
	f.window.Record(now, g, failed)
	if !failed {
		f.row.End()
		return false
	}
	if row := f.row.Failed(g); o.Consecutive > 0 && row >= o.Consecutive && f.rowEjects(o) {
		return true
	}
	return f.window.Ratio(o.FailureRatio, o.MinRequests) >= o.FailureRatio
}

// rowEjects reports whether the current run of failures is enough to eject the endpoint: failures came from most groups
// of clients, or from at least ejection.consecutive groups, or the groups without a failure sent fewer than
// ejection.min_requests requests, which do not show that the endpoint works.
func (f *failures) rowEjects(o *Ejection) bool {
	failed := f.row.Groups()
	all, others := f.window.Others(failed)
	return others < uint64(o.MinRequests) || failed.Most(all, 0.5, max(o.Consecutive, 2))
}

func (f *failures) clear() {
	f.window.Clear()
	f.row.End()
}

// ejectionState says whether an endpoint is ejected, and how far its return has come.
//
// With health checks, the probe is a check instead of a dial and a request.
//
//	enabled ──▶ ejected until a time ──▶ a dial ──▶ one request, the probe ──▶ enabled
//	                   ▲                   │                │
//	                   └───────────────────┴── fails ───────┘
type ejectionState struct {
	ejected    bool
	until      time.Time     // when the probe is due; in a dry run, when the endpoint would return
	duration   time.Duration // duration of the last ejection
	inARow     int           // ejections in a row, including the last one
	returned   time.Time     // when the endpoint returned; zero = slow_start does not apply
	probe      Probe
	probeStart time.Time // when the probe, or the dial for it, began
}

// maxProbeTime is how long a probe may take, which is longer than any deadline. A probe whose request panicked never
// reports its end, and must not keep the endpoint ejected forever.
const maxProbeTime = 11 * time.Minute

// Probe is a step of a probe.
type Probe uint8

// The steps.
const (
	NoProbe      Probe = iota
	ProbeDials         // the pool opens a connection for the probe
	ProbeReady         // the next request will be the probe
	ProbeSent          // the probe has been sent
	ProbeIsCheck       // the next health check will be the probe
)

// Probe returns the current step of e's probe.
func (e *Endpoint) Probe() Probe { return e.probe }

// Probing reports whether the pool needs a connection to the endpoint for its probe.
func (e *ejectionState) Probing() bool { return e.probe != NoProbe && e.probe != ProbeIsCheck }

// SetProbe sets the step of e's probe. NoProbe means that the probe must be started again.
func (b *Balancer) SetProbe(e *Endpoint, to Probe, now time.Time) {
	e.probe, e.probeStart = to, now
	if to == ProbeReady {
		b.probes = append(b.probes, e)
	}
}

// DueProbes returns the endpoints whose probe is due, and the time at which the next probe will be due. The zero time
// means that no further probe is planned.
func (b *Balancer) DueProbes(now time.Time) (due []*Endpoint, next time.Time) {
	for _, e := range b.all {
		if !e.Enabled() || !e.ejected {
			continue
		}
		if e.probe == ProbeSent && now.Sub(e.probeStart) > maxProbeTime {
			e.probe = NoProbe
		}
		switch {
		case e.probe != NoProbe:
		case !e.until.After(now):
			due = append(due, e)
		case next.IsZero() || e.until.Before(next):
			next = e.until
		}
	}
	return due, next
}

// ProbeEnded records how the probe of e ended. After a neutral result the probe is repeated. again says that e has a
// connection, so that the next request can be that probe.
func (b *Balancer) ProbeEnded(e *Endpoint, result exchange.Result, again bool, now time.Time) Change {
	switch {
	case e.probe != ProbeSent:
		return Change{}
	case result == exchange.Success:
		return b.returnEjected(e, now)
	case result == exchange.Failure:
		return b.ProbeFailed(e)
	case again:
		b.SetProbe(e, ProbeReady, now)
	default:
		e.probe = NoProbe
	}
	return Change{}
}

// ProbeFailed prolongs the ejection of e. The connections of e must drain, unless e serves although it is ejected,
// because no endpoint can serve.
func (b *Balancer) ProbeFailed(e *Endpoint) Change {
	e.probeFailed()
	return Change{DrainEndpoint: e.barred}
}

// ProbeLater postpones the probe of e to the given time, after a failure that does not blame e.
func (b *Balancer) ProbeLater(e *Endpoint, at time.Time) { e.probe, e.until = NoProbe, at }

// endEjection ends an ejection, also of a dry run, because a setting has changed. The next ejection may begin at
// once.
func (e *ejectionState) endEjection(now time.Time) {
	e.ejected, e.probe = false, NoProbe
	if e.until.After(now) {
		e.until = now
	}
}

// inherit ejects the endpoint if the previous pool had ejected it. The probe is due at once, because the new settings
// may have removed the cause.
func (e *ejectionState) inherit(before ejectionState, now time.Time) {
	if before.ejected && !e.ejected {
		e.ejected, e.until, e.duration, e.inARow, e.probe = true, now, before.duration, before.inARow, NoProbe
	}
}

// start begins an ejection. Each ejection in a row lasts longer. The row ends when the endpoint has worked for as
// long as its last ejection, and for at least a window.
func (e *ejectionState) start(o *Ejection, now time.Time) {
	if healthy := now.Sub(e.until); healthy >= max(e.duration, o.Window) {
		e.inARow = 0
	}
	e.inARow++
	e.duration = min(time.Duration(e.inARow)*o.BaseTime, o.MaxTime)
	e.until = now.Add(e.duration)
}

// fullShare is the result of slowStartStep after the slow start.
const fullShare = 10

// slowStartStep returns which of the fullShare steps of its slow start the endpoint has reached, from 1.
func (e *ejectionState) slowStartStep(slowStart time.Duration, now time.Time) int {
	if e.returned.IsZero() || slowStart <= 0 || now.Sub(e.returned) >= slowStart {
		return fullShare
	}
	return max(1, int(fullShare*now.Sub(e.returned)/slowStart))
}

// Event is a change of an endpoint's state that no operator made.
type Event struct {
	Endpoint string
	// Check is set if health checks caused the event. Then Err is the error of the last check, and the fields below
	// are not set.
	Check   CheckChange
	Err     error
	Ejected bool // the endpoint was ejected; false = it returned
	DryRun  bool // ejection.dry_run is set, so the endpoint was not really ejected
	// For an ejection: its duration, the number of ejections in a row, and the counts that caused
	// it.
	Lasts              time.Duration
	InARow             int
	Requests, Failures uint64 // in the window
	FailuresInARow     int
}

// Ended counts an attempt at e that was not a probe, for a client of the given group. It reports whether e fails too
// often; the caller must then call Eject. Ended is safe for concurrent use.
func (b *Balancer) Ended(e *Endpoint, result exchange.Result, client rates.Group, now time.Time) (failing bool) {
	o := b.ejection.Load()
	return o != nil && result != exchange.Neutral &&
		e.failures.record(o, client, result == exchange.Failure, now.Sub(b.epoch))
}

// DialFailed counts a failed dial to e like a failed attempt.
func (b *Balancer) DialFailed(e *Endpoint, now time.Time) Change {
	if !e.ejected && b.Ended(e, exchange.Failure, rates.Ours, now) {
		return b.Eject(e, now)
	}
	return Change{}
}

// Eject ejects e, unless e is out already, or too many endpoints are out.
func (b *Balancer) Eject(e *Endpoint, now time.Time) Change {
	o := &b.settings.Ejection
	if !o.Enabled || e.out() || e.removed || now.Before(e.until) || !b.mayGoOut(e) {
		return Change{}
	}
	event := Event{Endpoint: e.Name, Ejected: true, DryRun: o.DryRun, FailuresInARow: e.failures.row.Length()}
	event.Requests, event.Failures = e.failures.window.Tally()
	e.start(o, now)
	event.Lasts, event.InARow = e.duration, e.inARow
	e.failures.clear()
	if o.DryRun {
		return Change{Events: []Event{event}}
	}
	e.ejected = true
	change := b.rebuild(now)
	change.Events, change.DrainEndpoint = []Event{event}, e.barred
	return change
}

// probeFailed repeats the ejection with the same duration. If the duration grew, a long outage would keep a repaired
// endpoint out for minutes, while a probe costs only one request.
//
// The duration counts from the start of the probe, so that a probe that hangs until its deadline does not delay the
// next probe.
func (e *ejectionState) probeFailed() { e.until, e.probe = e.probeStart.Add(e.duration), NoProbe }

// returnEjected lets e take requests again.
func (b *Balancer) returnEjected(e *Endpoint, now time.Time) Change {
	e.ejected, e.probe, e.until, e.returned = false, NoProbe, now, now
	e.failures.clear()
	change := b.rebuild(now)
	change.Events = []Event{{Endpoint: e.Name}}
	return change
}
