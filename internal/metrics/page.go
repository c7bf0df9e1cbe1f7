package metrics

import (
	"cmp"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
)

// page is the response to one scrape; reused. Series arrive SSP by SSP, but each metric's series
// must be together. So each metric has its own text.
type page struct {
	format
	families []family // by Desc.id

	// scratch
	name       []byte
	counts     Counts
	cumulative []uint64
	message    message
}

// format is a format of Prometheus. The zero format is the text format.
type format struct{ openMetrics, protobuf bool }

type family struct {
	desc *Desc // nil without series
	kind kind
	text []byte // in protobuf the encoded series
}

func (p *page) reset(f format) {
	p.format = f
	for i := range p.families {
		p.families[i].desc, p.families[i].text = nil, p.families[i].text[:0]
	}
}

func (p *page) family(d *Desc, k kind) *family {
	if d.id >= len(p.families) {
		p.families = append(p.families, make([]family, d.id+1-len(p.families))...)
	}
	f := &p.families[d.id]
	f.desc, f.kind = d, k
	return f
}

// appendTo appends the metrics to b, sorted by name.
func (p *page) appendTo(b []byte) []byte {
	var all []*family
	for i := range p.families {
		if p.families[i].desc != nil {
			all = append(all, &p.families[i])
		}
	}
	slices.SortFunc(all, func(a, b *family) int { return cmp.Compare(a.desc.name, b.desc.name) })
	for _, f := range all {
		if p.protobuf {
			b = f.appendMessage(b)
			continue
		}
		b = f.desc.appendHead(b, f.kind, p.openMetrics)
		b = append(b, f.text...)
	}
	return b
}

// sample writes a counter or a gauge.
func (p *page) sample(d *Desc, k kind, v float64, first, more []string) {
	f := p.family(d, k)
	if p.protobuf {
		f.text = p.message.appendSample(f.text, d, k, v, first, more)
		return
	}
	f.text = d.appendName(f.text, "", first, more)
	f.text = append(p.appendNumber(append(f.text, ' '), v), '\n')
}

// appendName appends a series' name and labels: `name{ssp="openx",outcome="fill"}`.
func (d *Desc) appendName(b []byte, suffix string, first, more []string) []byte {
	b = d.appendLabels(append(append(b, d.name...), suffix...), first, more)
	if len(d.labels) > 0 {
		b = append(b, '}')
	}
	return b
}

// appendLabels appends the labels without the last brace.
func (d *Desc) appendLabels(b []byte, first, more []string) []byte {
	d.check(first, more)
	for _, l := range d.labels {
		b = appendValue(append(b, l.before...), l.of(first, more))
	}
	if len(d.labels) > 0 {
		b = append(b, '"')
	}
	return b
}

func appendValue(b []byte, v string) []byte {
	for i := range len(v) {
		if c := v[i]; c == '\\' || c == '"' || c == '\n' {
			return append(b, valueEscaper.Replace(v)...)
		}
	}
	return append(b, v...)
}

func (p *page) histogram(d *Desc, h *Histogram, first, more []string) {
	f := p.family(d, histograms)
	p.counts = h.appendCounts(p.counts[:0])
	p.cumulative = h.appendCumulative(p.cumulative[:0], p.counts)
	if p.protobuf {
		f.text = p.message.appendHistogram(f.text, d, h, p.counts, p.cumulative, first, more)
		return
	}
	p.name = d.appendLabels(append(append(p.name[:0], d.name...), "_bucket"...), first, more)
	if len(d.labels) > 0 {
		p.name = append(p.name, `,le="`...)
	} else {
		p.name = append(p.name, `{le="`...)
	}
	b, bounds, exemplars := f.text, h.les, []*Exemplar(nil)
	if p.openMetrics {
		bounds, exemplars = h.openMetricsLes, h.Exemplars()
	}
	for i, n := range p.cumulative {
		le := "+Inf"
		if i < len(bounds) {
			le = bounds[i]
		}
		b = append(append(append(b, p.name...), le...), `"} `...)
		b = strconv.AppendUint(b, n, 10)
		if exemplars != nil && exemplars[i] != nil {
			b = p.appendExemplar(b, h, exemplars[i])
		}
		b = append(b, '\n')
	}
	b = d.appendName(b, "_sum", first, more)
	b = append(p.appendNumber(append(b, ' '), h.Sum()), '\n')
	b = d.appendName(b, "_count", first, more)
	b = strconv.AppendUint(append(b, ' '), p.cumulative[len(p.cumulative)-1], 10)
	f.text = append(b, '\n')
}

func (p *page) appendExemplar(b []byte, h *Histogram, e *Exemplar) []byte {
	b = append(b, ` # {trace_id="`...)
	b = append(hex.AppendEncode(b, e.TraceID[:]), `"} `...)
	b = append(p.appendNumber(b, h.exportedValue(e)), ' ')
	return p.appendNumber(b, float64(e.At.UnixNano())/1e9)
}

// appendNumber appends v. OpenMetrics requires numbers in the form of floats.
func (p *page) appendNumber(b []byte, v float64) []byte {
	if whole := int64(v); float64(whole) == v && whole > -1e6 && whole < 1e6 { // the usual case, and the fastest
		b = strconv.AppendInt(b, whole, 10)
		if p.openMetrics {
			b = append(b, ".0"...)
		}
		return b
	}
	switch {
	case math.IsInf(v, 1):
		return append(b, "+Inf"...)
	case math.IsInf(v, -1):
		return append(b, "-Inf"...)
	}
	return appendFloat(b, v, p.openMetrics)
}

// appendFloat appends a finite v or NaN.
func appendFloat(b []byte, v float64, openMetrics bool) []byte {
	at := len(b)
	b = strconv.AppendFloat(b, v, 'g', -1, 64)
	if openMetrics && !math.IsNaN(v) && !slices.ContainsFunc(b[at:], func(c byte) bool { return c == '.' || c == 'e' }) {
		b = append(b, ".0"...)
	}
	return b
}
