// Package route decides which SSPs a request goes to, in five modes.
package route

import (
	"slices"
	"time"

	"adbuffer/internal/machine/overload"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/openrtb"
)

// Mode is how a route uses its SSPs. Target.Eligible says which targets are eligible for a request.
type Mode string

// The modes. Any other value means Single.
const (
	Single        Mode = "single"         // the first eligible target
	Split         Mode = "split"          // one eligible target, drawn by weight
	Waterfall     Mode = "waterfall"      // the eligible targets in order, until one fills
	ParallelFirst Mode = "parallel-first" // all eligible targets; the first fill is the response
	ParallelAll   Mode = "parallel-all"   // all eligible targets; the responses are combined into one document
)

// NoAd is the response of a route without an ad.
type NoAd string

// The responses. Any other value, such as "empty", means 204.
const (
	NoAdVAST NoAd = "vast" // 200 with an empty VAST document
	// NoAdOpenRTB is 200 with a BidResponse without bids, or 204 for a request without an id.
	NoAdOpenRTB NoAd = "openrtb"
)

// Target is an SSP's part in a route.
type Target struct {
	SSP       *ssp.SSP
	Weight    int           // of Split
	Timeout   time.Duration // of Waterfall, 0 = only the deadline applies
	Secondary bool          // of ParallelAll: the response does not wait for this SSP
	// When are conditions on the body, beside those of the SSP. If they do not hold, the SSP is not eligible.
	When []openrtb.Condition

	when []openrtb.Test
}

// Route is one route. It does not change after NewTable.
type Route struct {
	Name  string
	Match Match
	Mode  Mode
	// Targets has at least one target, and no SSP twice. For Split, at least one target has a weight.
	Targets      []Target
	ClientChoice bool
	// If NoAdOnError is true, the client gets the NoAd response in place of adbuffer's own 5xx, of a response whose
	// status is in Masked, and of a response with the outcome exchange.Unreadable.
	NoAdOnError bool
	Masked      Statuses
	NoAd        NoAd
	// MergeOpenRTB makes one BidResponse of the responses of ParallelAll. CheckMerge must have accepted the
	// request.
	MergeOpenRTB bool
	TruncateIP   bool
	Priority     overload.Priority
	Mirror       *Mirror // nil = no mirror
	CORS         CORS

	// Index is the route's place in its table.
	Index int

	conditions  []openrtb.Test   // Match.OpenRTB
	filters     bool             // a target has conditions
	asksConsent bool             // a condition of the route, of a target or of the mirror has TCF
	edits       []*openrtb.Check // of each SSP, also the mirror, for which the body is edited; compiled into edited
	edited      openrtb.Paths
	rewrites    bool // at least one SSP gets the remaining time as tmax
	abandons    bool // a target is secondary

	weights int             // sum of the targets', for Split
	draw    func(n int) int // a random number from 0 to n-1, for Split
}

// Table holds all routes, in order: the first match wins.
type Table struct {
	Routes []*Route

	params []string      // names of query parameters in conditions
	paths  openrtb.Paths // of all conditions on bodies
}

// NewTable returns a table of routes, and sets their Index.
func NewTable(routes []*Route) *Table {
	t := &Table{Routes: routes}
	for i, rt := range routes {
		rt.Index = i
		t.indexParams(rt.Match.Query)
		rt.conditions = t.paths.Conditions(rt.Match.OpenRTB)
		rt.asksConsent = haveTCF(rt.Match.OpenRTB)
		for i := range rt.Targets {
			target := &rt.Targets[i]
			rt.compile(t, target)
			rt.abandons = rt.abandons || target.Secondary
			rt.addEdits(target.SSP)
			if rt.MergeOpenRTB {
				target.SSP.CountMerges()
			}
		}
		if rt.Mirror != nil {
			rt.Mirror.target = Target{SSP: rt.Mirror.SSP}
			rt.compile(t, &rt.Mirror.target)
			rt.addEdits(rt.Mirror.SSP)
		}
		if rt.Mode == Split {
			rt.prepareSplit()
		}
	}
	return t
}

// compile adds the conditions of a target to the table.
func (rt *Route) compile(t *Table, target *Target) {
	all := slices.Concat(target.SSP.When(), target.When)
	target.when = t.paths.Conditions(all)
	rt.filters = rt.filters || len(all) > 0
	if haveTCF(all) {
		rt.asksConsent = true
		target.SSP.CountDecisions()
	}
}

func haveTCF(conditions []openrtb.Condition) bool {
	return slices.ContainsFunc(conditions, func(c openrtb.Condition) bool { return c.TCF != nil })
}

func (rt *Route) addEdits(s *ssp.SSP) {
	rt.rewrites = rt.rewrites || s.RewritesTmax()
	if edit := s.Edit(); edit != nil {
		rt.edits = append(rt.edits, edit.NewCheck(&rt.edited))
	}
}

// RewritesTmax reports whether at least one SSP of the route, or its mirror, gets the remaining time as tmax.
func (rt *Route) RewritesTmax() bool { return rt.rewrites }

// EditsBodies reports whether the body is edited for at least one SSP of the route, or for its mirror. If so, ScanEdits
// must examine the body before Do: a body that cannot be edited makes the SSPs that need an edit ineligible, and only
// those.
func (rt *Route) EditsBodies() bool { return len(rt.edits) > 0 }

// ScanEdits finds the members of body that the edits for all SSPs concern. If the body cannot be edited at all, f.Reason
// says why; otherwise it is openrtb.Readable, and misfits are the edits that cannot be applied because of
// openrtb.WrongType. The caller copies both to the Request.
func (rt *Route) ScanEdits(body []byte, f *openrtb.Facts) (misfits []*openrtb.Edit) {
	rt.edited.Scan(body, f)
	for _, c := range rt.edits {
		if f.Reason == openrtb.Readable && !c.Fits(body, f) {
			misfits = append(misfits, c.Edit)
		}
	}
	return misfits
}

// Filters reports whether the body decides which SSPs, or whether the mirror, get a request. Then Examine must come before
// Do.
func (rt *Route) Filters() bool { return rt.filters }

// indexParams adds the names of the conditions' parameters to params.
func (t *Table) indexParams(conditions []Condition) {
	for i := range conditions {
		c := &conditions[i]
		at := slices.Index(t.params, c.Name)
		if at < 0 {
			at = len(t.params)
			t.params = append(t.params, c.Name)
		}
		c.param = at
	}
}

// target returns the target whose SSP has the name, or nil.
func (rt *Route) target(name []byte) *Target {
	for i := range rt.Targets {
		if rt.Targets[i].SSP.Name() == string(name) {
			return &rt.Targets[i]
		}
	}
	return nil
}
