package openrtb

import (
	"adbuffer/internal/wire/header"
)

// Edit is a compiled list of changes to bodies. It changes only the bytes of the members that it names, and
// the commas next to them. Any number of goroutines may use it.
type Edit struct {
	paths         Paths
	removals      [][]Test // the conditions of each removal
	unconditional bool     // at least one change has no conditions
}

// Removal removes the members at Path, if all conditions hold.
type Removal struct {
	Path Path
	When []Condition
}

// NewEdit returns an Edit that removes members.
func NewEdit(removals []Removal) *Edit {
	e := new(Edit)
	for _, r := range removals {
		n := e.paths.node(r.Path)
		n.removals = append(n.removals, int32(len(e.removals)))
		tests := make([]Test, len(r.When))
		for i := range r.When {
			tests[i] = e.paths.Condition(&r.When[i])
		}
		e.removals = append(e.removals, tests)
		e.unconditional = e.unconditional || len(tests) == 0
	}
	return e
}

// addressPaths are the members with a device's addresses, in OpenRTB 2 and 3.
var addressPaths = []string{"device.ip", "device.ipv6", "openrtb.request.context.device.ip", "openrtb.request.context.device.ipv6"}

// ShortenAddresses is an Edit that shortens the addresses of the device with header.Shorten. It removes an
// address member whose value is no address.
var ShortenAddresses = func() *Edit {
	e := &Edit{unconditional: true}
	for _, path := range addressPaths {
		e.paths.node(MustParsePath(path)).shortened = true
	}
	return e
}()

// AddPaths adds to p the paths of all changes of e and of their conditions, so that p finds a body
// unreadable if e does.
func (e *Edit) AddPaths(p *Paths) { p.root.addAll(p, &e.paths.root) }

func (n *node) addAll(p *Paths, from *node) {
	for _, c := range from.children {
		p.below(n, c.name).addAll(p, c.node)
	}
	if from.element != nil {
		p.below(n, AnyElement).addAll(p, from.element)
	}
}

// Apply appends the edited body to dst, and returns true. If nothing changes, or if the body is unreadable,
// it returns dst and false, and f.Reason says which is the case. The edited body is at most as long as
// body, so dst may be body[:0].
func (e *Edit) Apply(dst, body []byte, f *Facts) (edited []byte, changed bool) {
	e.paths.Scan(body, f)
	if f.Reason != Readable || !e.changes(f) {
		return dst, false
	}
	s := scanner{body: body, facts: f, editor: editor{edit: e, out: dst}}
	s.document(&e.paths.root)
	if s.reason != Readable {
		panic("BUG: an edit made a body unreadable: " + s.reason.String())
	}
	if s.editor.copied == 0 {
		return dst, false
	}
	return append(s.editor.out, body[s.editor.copied:]...), true
}

// changes reports whether the conditions of at least one change hold.
func (e *Edit) changes(f *Facts) bool {
	if e.unconditional {
		return true
	}
	for _, tests := range e.removals {
		if f.HoldAll(tests) {
			return true
		}
	}
	return false
}

// editor applies an Edit while a scanner examines the body.
type editor struct {
	edit   *Edit
	out    []byte // the edited form of body[:copied]; len(out) <= copied
	copied int
}

// removes reports whether the member at n is removed.
func (e *editor) removes(n *node, f *Facts) bool {
	for _, i := range n.removals {
		if f.HoldAll(e.edit.removals[i]) {
			return true
		}
	}
	return false
}

// cut removes body[from:to].
func (e *editor) cut(body []byte, from, to int) {
	e.out = append(e.out, body[e.copied:from]...)
	e.copied = to
}

// cutLast removes the last member of an object, which ends at end. kept is the end of the last member that
// stays, and from is the start of the first removed member after it.
func (e *editor) cutLast(body []byte, kept, from, end int) {
	if e.copied > kept { // earlier cuts have already copied body[kept:from], which ends with a comma, to out
		e.out = e.out[:len(e.out)-(from-kept)]
		e.copied = end
		return
	}
	e.cut(body, kept, end)
}

// shorten replaces the address body[start:end] by its shortened form. It returns false if the value is no
// address.
func (e *editor) shorten(body []byte, start, end int, f *Facts) bool {
	if body[start] != '"' {
		return false
	}
	address, ok := header.ParseAddress(f.content(body[start:end]))
	if !ok {
		return false
	}
	e.cut(body, start+1, end-1)
	e.out = header.Shorten(address).AppendTo(e.out)
	return true
}
