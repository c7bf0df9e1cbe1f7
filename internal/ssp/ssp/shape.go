package ssp

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"adbuffer/internal/ssp/shaper"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/openrtb"
)

// shape decides which requests an SSP drops before their first attempt: qps.shape. It reads the segment of a request
// and asks the shaper. A successor of the SSP shares the shaper if it has the same keys. It is safe for concurrent use.
type shape struct {
	*shaper.Shaper
	keys    []shapeKey
	paths   openrtb.Paths // of the keys that are members of the body
	scans   bool          // paths is not empty
	enforce bool          // drop requests; false = only learn and report
}

// shapeKey is one of ShapeOptions.Keys.
type shapeKey struct {
	name   string
	field  *FairnessKey // reads a header field or a query parameter; nil for a member of the body
	member openrtb.Member
}

// FoldShapeKey returns a key of ShapeOptions in the spelling that it shares with all equal keys: only the names of header
// fields ignore case.
func FoldShapeKey(key string) string {
	if strings.HasPrefix(key, "header:") {
		return strings.ToLower(key)
	}
	return key
}

// newShape returns the shape of an SSP's options, nil without keys. It continues was, which may be nil, if the keys are
// the same.
func newShape(o *Options, was *shape, now time.Time) *shape {
	if len(o.Shape.Keys) == 0 {
		return nil
	}
	p := &shape{enforce: !o.Shape.DryRun && !o.QPS.DryRun}
	for _, name := range o.Shape.Keys {
		k := shapeKey{name: name}
		if path, ok := strings.CutPrefix(name, "openrtb:/"); ok {
			k.member, p.scans = p.paths.Member(strings.Split(path, "/")), true
		} else {
			k.field = NewFairnessKey(name)
		}
		p.keys = append(p.keys, k)
	}
	settings := shaper.Settings{
		Limit: o.QPS.Limit, Burst: o.QPS.BurstInForce(), Explore: o.Shape.Explore, MaxLoss: o.Shape.MaxLoss, DryRun: !p.enforce, Limits: !o.QPS.DryRun, Keys: len(p.keys),
	}
	if was != nil && slices.EqualFunc(p.keys, was.keys, func(a, b shapeKey) bool { return FoldShapeKey(a.name) == FoldShapeKey(b.name) }) {
		p.Shaper = was.Shaper
		p.Set(settings)
	} else {
		p.Shaper = shaper.New(settings, rand.Uint64(), now)
	}
	if f := o.QPS.Fleet; f != nil {
		p.SetLimit(f.Share()) // in the settings, 0 would be no limit
	}
	return p
}

// errShaped has no Retry-After: the same request would probably be dropped again.
var errShaped = &exchange.Error{
	Outcome: exchange.Shaped, Progress: exchange.NotSent, Detail: "the SSP rarely fills such requests, and gets a part of them only; see ssps[].qps.shape",
}

// decide scores r, and returns errShaped if r is dropped, which also depends on how many tokens are left in q.
func (p *shape) decide(r *Request, q *qps, c *call, now time.Duration) *exchange.Error {
	if f := q.opts.Fleet; f != nil {
		p.SetLimit(f.Share())
	}
	p.read(r, &c.segment, nil)
	c.decision, c.scored = p.Decide(&c.segment, q.left(now), c.start), true
	if c.decision.Kind == shaper.Dropped {
		return errShaped
	}
	return nil
}

// read sets segment to that of r. If shown is not nil, read appends each key with r's value to it.
func (p *shape) read(r *Request, segment *shaper.Segment, shown *[]ShapedKey) {
	var facts *openrtb.Facts // nil without keys that are members of the body, or if the body has a coding
	if p.scans && r.Fields.ContentEncoding() == nil {
		facts = openrtb.AcquireFacts()
		defer facts.Release()
		p.paths.Scan(r.Body, facts)
	}
	for i := range p.keys {
		value := p.keys[i].value(r, facts)
		p.Hash(i, segment, value)
		if shown != nil {
			*shown = append(*shown, ShapedKey{p.keys[i].name, string(value)})
		}
	}
}

// value returns r's value of the key as it came; empty if r has none, or if the body is unreadable.
func (k *shapeKey) value(r *Request, facts *openrtb.Facts) []byte {
	switch {
	case k.field != nil:
		return k.field.Value(r)
	case facts != nil:
		return facts.Value(k.member, r.Body)
	}
	return nil
}

// learn teaches the shaper how the first attempt of c ended, if that was a fill or a no-bid.
func (p *shape) learn(c *call, at time.Time) {
	if fill := c.outcome == exchange.Fill; fill || c.outcome == exchange.NoBid {
		p.Learn(&c.segment, c.decision, fill, at)
	}
}

// unsent tells the shaper that c, which it did not drop, ended before it was sent.
func (p *shape) unsent(c *call, at time.Time) {
	if c.scored && c.decision.Kind != shaper.Dropped {
		p.Unsent(c.decision, at)
	}
}

// Shaping is what an SSP's shaper knows of a request.
type Shaping struct {
	Keys     []ShapedKey // all keys of the settings; Prefixes ends at the first prefix without an entry
	Enforced bool        // requests are dropped; false = the shaper only learns and reports
	shaper.Explanation
}

// ShapedKey is a key of qps.shape with the request's value.
type ShapedKey struct{ Name, Value string }

// Shaping explains what the SSP's shaper would do with r. It counts nothing, and returns nil if r is not scored.
func (s *SSP) Shaping(r *Request) *Shaping {
	p := s.shape
	if p == nil || r.Method == exchange.HEAD {
		return nil
	}
	e := &Shaping{Enforced: p.enforce}
	var segment shaper.Segment
	p.read(r, &segment, &e.Keys)
	e.Explanation = p.Explain(&segment, time.Now())
	return e
}

// ShapeReport returns what the SSP's shaper did. ok is false if the SSP has no shaper, and enforced is false if the
// shaper drops no requests.
func (s *SSP) ShapeReport() (report shaper.Report, enforced, ok bool) {
	if s.shape == nil {
		return shaper.Report{}, false, false
	}
	return s.shape.Report(time.Now()), s.shape.enforce, true
}
