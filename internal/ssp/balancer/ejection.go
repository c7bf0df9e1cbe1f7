package balancer

import (
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/wire/exchange"
)

// Ejection says when a failing endpoint gets no requests for a while. Package config says what the tags mean.
type Ejection struct {
	Enabled      bool          `yaml:"enabled" default:"true"`
	Window       time.Duration `yaml:"window" default:"10s" min:"100ms" max:"10m"`
	MinRequests  int           `yaml:"min_requests" default:"20" min:"1" max:"10000000"` // in the window, before the ratio ejects
	FailureRatio float64       `yaml:"failure_ratio" default:"0.5" min:"0.01" max:"1"`
	BaseTime     time.Duration `yaml:"base_time" default:"5s" min:"10ms" max:"1h" at_most:"max_time"` // times the number of ejections in a row
	MaxTime      time.Duration `yaml:"max_time" default:"5m" min:"10ms" max:"24h"`
	Consecutive  int           `yaml:"consecutive" default:"5" min:"0" max:"1000000"` // 0 = only the ratio ejects
	MaxEjected   float64       `yaml:"max_ejected" default:"0.5" min:"0" max:"1"`     // share of the endpoints of one priority
	DryRun       bool          `yaml:"dry_run"`                                       // count, eject nothing
}

// most returns how many of n endpoints of one priority may be out at the same time, unless an
// endpoint of another priority can serve.
func (o *Ejection) most(n int) int {
	const tiny = 1e-9 // 0.58 * 50 is 28.999…
	return min(max(int(o.MaxEjected*float64(n)+tiny), 1), n-1)
}

// failures counts an endpoint's failures. Its fields are atomic because each request changes them.
type failures struct {
	window rates.Window
	row    rates.Row
}

// record counts an attempt for a client of group g, and reports whether the endpoint should be ejected.
func (f *failures) record(o *Ejection, g rates.Group, failed bool, now time.Duration) bool {
	f.window.Record(now, g, failed)
	if !failed {
		f.row.End()
		return false
	}
	if row := f.row.Failed(g); o.Consecutive > 0 && row >= o.Consecutive && f.rowCounts(o) {
		return true
	}
	return f.window.Ratio(o.FailureRatio, o.MinRequests) >= o.FailureRatio
}

// rowCounts reports whether failures in a row eject: most groups of clients took part, or as many as
// the row needs failures, or the other groups have too few requests to show that the endpoint works.
func (f *failures) rowCounts(o *Ejection) bool {
	failed := f.row.Groups()
	all, others := f.window.Others(failed)
	return others < uint64(o.MinRequests) || failed.Most(all, 0.5, max(o.Consecutive, 2))
}

func (f *failures) clear() {
	f.window.Clear()
	f.row.End()
}

// ejection holds whether an endpoint is ejected, and the steps of its return.
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
	probe    Probe
	probed   time.Time // when the probe, or the dial for it, began
}

// probeLimit is how long a probe may take. It is longer than any deadline. A probe whose request
// panicked never reports its end, and must not keep the endpoint ejected forever.
const probeLimit = 11 * time.Minute

// Probe is a step of a probe.
type Probe uint8

// The steps.
const (
	NoProbe      Probe = iota
	ProbeDials         // the pool opens a connection
	ProbeReady         // the next request is the probe
	ProbeSent          // a request is the probe
	ProbeIsCheck       // the next health check is the probe
)

// Probe returns the step of e's probe.
func (e *Endpoint) Probe() Probe { return e.probe }

// Probing reports whether a connection of the pool is for the probe.
func (e *ejection) Probing() bool { return e.probe != NoProbe && e.probe != ProbeIsCheck }

// SetProbe begins a step of e's probe. NoProbe means that the probe must begin again.
func (b *Balancer) SetProbe(e *Endpoint, to Probe, now time.Time) {
	e.probe, e.probed = to, now
	if to == ProbeReady {
		b.probes = append(b.probes, e)
	}
}

// DueProbes returns the endpoints whose probe is due, and when the next one is due after them. The
// zero time means that none is.
func (b *Balancer) DueProbes(now time.Time) (due []*Endpoint, next time.Time) {
	for _, e := range b.all {
		if !e.Enabled() || !e.ejected {
			continue
		}
		if e.probe == ProbeSent && now.Sub(e.probed) > probeLimit {
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

// ProbeEnded records how the probe of e ended. again says that the next request can be the probe,
// since e has a connection: it is used if the result is neutral.
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

// ProbeFailed prolongs the ejection of e. Its connections stay if it is the only endpoint left, and
// serves although it is ejected.
func (b *Balancer) ProbeFailed(e *Endpoint) Change {
	e.probeFailed()
	return Change{Drain: e.barred}
}

// ProbeLater makes the probe of e due at the given time, since a failure says nothing about e.
func (b *Balancer) ProbeLater(e *Endpoint, at time.Time) { e.probe, e.until = NoProbe, at }

// endEjection ends the ejection, or the dry run of one, because a setting changed. The next ejection may
// begin at once.
func (e *ejection) endEjection(now time.Time) {
	e.ejected, e.probe = false, NoProbe
	if e.until.After(now) {
		e.until = now
	}
}

// inherit ejects e if the pool before had ejected it. The probe is due at once, because the new
// settings may have repaired the endpoint.
func (e *ejection) inherit(before ejection, now time.Time) {
	if before.ejected && !e.ejected {
		e.ejected, e.until, e.lasts, e.inARow, e.probe = true, now, before.lasts, before.inARow, NoProbe
	}
}

// begin ejects the endpoint. Each ejection in a row lasts longer. A row ends once the endpoint has
// worked for as long as its last ejection, and for at least a window.
func (e *ejection) begin(o *Ejection, now time.Time) {
	if healthy := now.Sub(e.until); healthy >= max(e.lasts, o.Window) {
		e.inARow = 0
	}
	e.inARow++
	e.lasts = min(time.Duration(e.inARow)*o.BaseTime, o.MaxTime)
	e.until = now.Add(e.lasts)
}

// fullShare is what started returns after the slow start.
const fullShare = 10

// started returns how far a returned endpoint is in its slow start.
func (e *ejection) started(slowStart time.Duration, now time.Time) int {
	if e.returned.IsZero() || slowStart <= 0 || now.Sub(e.returned) >= slowStart {
		return fullShare
	}
	return max(1, int(fullShare*now.Sub(e.returned)/slowStart))
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

// Ended counts an attempt at e that was no probe, for a client of the given group. It reports whether
// e fails too often: the caller then calls Eject. Ended is safe for concurrent use.
func (b *Balancer) Ended(e *Endpoint, result exchange.Result, client rates.Group, now time.Time) (failing bool) {
	o := b.ejection.Load()
	return o != nil && result != exchange.Neutral &&
		e.failures.record(o, client, result == exchange.Failure, now.Sub(b.made))
}

// DialFailed counts a failed dial to e like a failed attempt.
func (b *Balancer) DialFailed(e *Endpoint, now time.Time) Change {
	if !e.ejected && b.Ended(e, exchange.Failure, rates.Ours, now) {
		return b.Eject(e, now)
	}
	return Change{}
}

// Eject ejects e, unless it is out already or too many endpoints are.
func (b *Balancer) Eject(e *Endpoint, now time.Time) Change {
	o := &b.settings.Ejection
	if !o.Enabled || e.out() || e.removed || now.Before(e.until) || !b.mayGoOut(e) {
		return Change{}
	}
	event := Event{Endpoint: e.Name, Ejected: true, DryRun: o.DryRun, FailuresInARow: e.failures.row.Length()}
	event.Requests, event.Failures = e.failures.window.Tally()
	e.begin(o, now)
	event.Lasts, event.InARow = e.lasts, e.inARow
	e.failures.clear()
	if o.DryRun {
		return Change{Events: []Event{event}}
	}
	e.ejected = true
	change := b.rebuild(now)
	change.Events, change.Drain = []Event{event}, e.barred
	return change
}

// probeFailed repeats the ejection with the same duration. The duration does not grow: otherwise a
// long outage would keep a repaired endpoint out for minutes. A probe costs only one request.
//
// The duration counts from the start of the probe. A probe that hangs until its deadline does not
// delay the next one, so a repaired endpoint is back within the duration.
func (e *ejection) probeFailed() { e.until, e.probe = e.probed.Add(e.lasts), NoProbe }

// returnEjected lets e take requests again.
func (b *Balancer) returnEjected(e *Endpoint, now time.Time) Change {
	e.ejected, e.probe, e.until, e.returned = false, NoProbe, now, now
	e.failures.clear()
	change := b.rebuild(now)
	change.Events = []Event{{Endpoint: e.Name}}
	return change
}
