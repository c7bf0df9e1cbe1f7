package openrtb

import (
	"bytes"
	"slices"
	"sync"
	"unicode/utf8"

	"adbuffer/internal/wire/syntax"
	"adbuffer/internal/wire/tcf"
)

// Facts holds what Paths.Scan found in one body. The zero value is ready for Scan. A Facts keeps its memory
// for the next Scan. It belongs to one goroutine at a time.
type Facts struct {
	// Reason says why the body is unreadable.
	Reason Reason
	// Consent decides conditions with TCF; nil if no Scan has read it. Unless it is set, Scan and Refuse set it to that of
	// the body, if such a condition needs it. So that a request's consent string is decoded once, a Facts for another part
	// of the request gets the same Consent before Scan.
	Consent *tcf.Consent

	bits    []uint64 // a bit for each fact
	members []span   // the values of members, by Member.index
	seen    []uint32 // the serial number of the last object that has the node's member, by node.id
	serial  uint32   // serial number of the last object that was examined
	scratch []byte   // memory for a name or value without its escapes
	states  []state  // of the set nodes of an Edit
	// removes and sets say for each Removal and each Set of an Edit whether its conditions hold. They are decided once for a
	// body, however often it has the members: a long consent string makes a decision cost microseconds.
	removes, sets []bool

	malformed bool   // the document itself, or an entry that cannot be left out, is malformed
	cuts      []span // the entries to leave out, each with one adjacent comma, in order
	leftOut   []span // the ids of the entries to leave out; an unknown id is an empty span
}

var pool = sync.Pool{New: func() any { return new(Facts) }}

// AcquireFacts returns memory for the facts about a body.
func AcquireFacts() *Facts { return pool.Get().(*Facts) }

// Release gives f back. The caller must not use f after that.
func (f *Facts) Release() {
	f.Consent = nil
	pool.Put(f)
}

// span is the part of a body from start to end.
type span struct{ start, end int }

// reset prepares f for a scan by p.
func (f *Facts) reset(p *Paths) {
	f.bits = resized(f.bits, int(p.facts+63)/64)
	clear(f.bits)
	f.members = resized(f.members, int(p.members))
	clear(f.members)
	f.malformed, f.cuts, f.leftOut = false, f.cuts[:0], f.leftOut[:0]
	if cap(f.scratch) > maxKeptScratch {
		f.scratch = nil
	}
	if len(f.seen) != int(p.nodes) || f.serial > 1<<31 { // the serial number must not overflow within a body
		f.seen = resized(f.seen, int(p.nodes))
		clear(f.seen)
		f.serial = 0
	}
}

// maxKeptScratch bounds the memory for names and values that a Facts keeps for the next body.
const maxKeptScratch = 4 << 10

func resized[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }

// Holds reports whether a condition holds. No condition on a member holds for an unreadable body. Consent decides
// conditions with TCF, also for an unreadable body.
func (f *Facts) Holds(t Test) bool {
	if t.tcf != nil {
		return f.Consent.Decide(t.tcf).Allows() == t.want
	}
	return f.Reason == Readable && f.has(t.fact) == t.want
}

// HoldAll reports whether all conditions hold. For an empty list it returns true, even if the body is
// unreadable.
func (f *Facts) HoldAll(tests []Test) bool {
	for _, t := range tests {
		if !f.Holds(t) {
			return false
		}
	}
	return true
}

// holdEach says for each list of conditions whether all of them hold. The result uses memory.
func (f *Facts) holdEach(memory []bool, lists [][]Test) []bool {
	memory = resized(memory, len(lists))
	for i, tests := range lists {
		memory[i] = f.HoldAll(tests)
	}
	return memory
}

func (f *Facts) has(fact int32) bool { return f.bits[fact>>6]>>(fact&63)&1 != 0 }

func (f *Facts) set(fact int32) { f.bits[fact>>6] |= 1 << (fact & 63) }

// Value returns the value of m in body, which Scan has examined, as JSON without surrounding blanks. It
// returns nil if the body is unreadable or has no such member.
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

// observe sets the facts that follow from a value at n.
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

// content returns the content of a string, without quotes and escapes. The result is valid until the next
// call.
func (f *Facts) content(quoted []byte) []byte {
	s := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(s, '\\') < 0 {
		return s
	}
	f.scratch = appendUnescaped(f.scratch[:0], s)
	return f.scratch
}

// appendUnescaped appends the content of a string without its escapes. s is the text between the string's
// quotes, which syntax.SkipJSONString has accepted. A lone surrogate becomes U+FFFD.
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
