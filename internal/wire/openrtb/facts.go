package openrtb

import (
	"bytes"
	"slices"
	"sync"
	"unicode/utf8"

	"adbuffer/internal/wire/syntax"
)

// Facts are what Paths.Scan found in one body. The zero value is ready for Scan, and has memory for the
// next one afterwards. A Facts belongs to one goroutine at a time.
type Facts struct {
	// Reason says why the body is unreadable.
	Reason Reason

	bits    []uint64 // a bit for each fact
	members []span
	seen    []uint32 // by node.id: the serial number of the last object that has this member
	serial  uint32   // of the last object that was examined
	scratch []byte   // for a name or value without its escapes

	malformed bool   // the document is, or a part of it that cannot be left out
	cuts      []span // the parts that are left out, each with a comma beside it, in order
	leftOut   []span // the ids of these parts; an id that is unknown is an empty span
}

var pool = sync.Pool{New: func() any { return new(Facts) }}

// AcquireFacts returns memory for the facts about a body.
func AcquireFacts() *Facts { return pool.Get().(*Facts) }

// Release gives f back. The caller must not use it afterwards.
func (f *Facts) Release() { pool.Put(f) }

// span is the part of a body from start to end.
type span struct{ start, end int }

// reset prepares for a body that p scans.
func (f *Facts) reset(p *Paths) {
	f.bits = resized(f.bits, int(p.facts+63)/64)
	clear(f.bits)
	f.members = resized(f.members, int(p.members))
	clear(f.members)
	f.malformed, f.cuts, f.leftOut = false, f.cuts[:0], f.leftOut[:0]
	if cap(f.scratch) > maxKeptScratch {
		f.scratch = nil
	}
	if len(f.seen) != int(p.nodes) || f.serial > 1<<31 { // a body has fewer objects than bytes
		f.seen = resized(f.seen, int(p.nodes))
		clear(f.seen)
		f.serial = 0
	}
}

// maxKeptScratch is how much memory for names and values a Facts keeps for the next body.
const maxKeptScratch = 4 << 10

func resized[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }

// Holds reports whether a condition holds. None holds for an unreadable body.
func (f *Facts) Holds(t Test) bool {
	return f.Reason == Readable && f.has(t.fact) == t.want
}

// HoldAll reports whether all conditions hold. No condition holds for an unreadable body, but no
// conditions do.
func (f *Facts) HoldAll(tests []Test) bool {
	for _, t := range tests {
		if !f.Holds(t) {
			return false
		}
	}
	return true
}

func (f *Facts) has(fact int32) bool { return f.bits[fact>>6]>>(fact&63)&1 != 0 }

func (f *Facts) set(fact int32) { f.bits[fact>>6] |= 1 << (fact & 63) }

// Value returns the value of m in body, which Scan examined: JSON without blanks around it. It returns nil
// if there is none, or if the body is unreadable.
func (f *Facts) Value(m Member, body []byte) []byte {
	if f.Reason != Readable {
		return nil
	}
	s := f.members[m.index]
	if s.start == s.end {
		return nil
	}
	return body[s.start:s.end:s.end]
}

// observe notes the facts that follow from a value at n.
func (f *Facts) observe(n *node, value []byte) {
	var facts []int32
	switch value[0] {
	case '"':
		facts = n.values.strings[string(f.content(value))]
	case 't', 'f':
		facts = n.values.others[string(value)]
	case '{', '[', 'n':
	default:
		var memory [2 * maxNumber]byte
		if number, ok := appendCanonical(memory[:0], value); ok {
			facts = n.values.others[string(number)]
		}
	}
	for _, fact := range facts {
		f.set(fact)
	}
}

// content returns the content of a string: without quotes and escapes. It is valid until the next call.
func (f *Facts) content(quoted []byte) []byte {
	s := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(s, '\\') < 0 {
		return s
	}
	f.scratch = appendUnescaped(f.scratch[:0], s)
	return f.scratch
}

// appendUnescaped appends the content of a string without its escapes. s is the string's bytes between
// its quotes; syntax.SkipJSONString has accepted it. A lone surrogate becomes U+FFFD.
func appendUnescaped(b, s []byte) []byte {
	for len(s) > 0 {
		if s[0] != '\\' {
			b, s = append(b, s[0]), s[1:]
			continue
		}
		r, n := syntax.JSONEscape(s)
		if n == 0 {
			r, n = utf8.RuneError, len(`\ud800`)
		}
		b, s = utf8.AppendRune(b, r), s[n:]
	}
	return b
}
