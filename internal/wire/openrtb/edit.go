package openrtb

import (
	"slices"

	"adbuffer/internal/wire/header"
)

// Edit is a compiled list of changes to bodies. It changes only the bytes of the members that it names, and
// the commas next to them. Any number of goroutines may use it.
type Edit struct {
	paths    Paths
	removals []Removal
	sets     []Set
	compiled compiled // into paths
	shortens bool     // the addresses of the device

	// If there are sets:
	setNodes []*setNode // the members on the paths of sets; parents come before their children
	rules    []rule     // one for each Set
	growth   int
}

// Removal removes the members at Path, if all conditions hold.
type Removal struct {
	Path Path
	When []Condition
}

// NewEdit returns an Edit that first removes members, and then applies the sets in their order. All conditions are
// about the body before the changes.
func NewEdit(removals []Removal, sets ...Set) *Edit {
	e := &Edit{removals: removals, sets: sets}
	for i, r := range removals {
		n := e.paths.node(r.Path)
		n.removals = append(n.removals, int32(i))
	}
	e.addSetNodes()
	e.compiled = e.compile(&e.paths)
	e.readValues()
	return e
}

// compiled holds the conditions and members of an Edit, compiled into one Paths.
type compiled struct {
	removals, sets [][]Test // the conditions of each
	members        []Member // of each set node
}

func (e *Edit) compile(p *Paths) (c compiled) {
	for _, r := range e.removals {
		p.node(r.Path)
		c.removals = append(c.removals, p.Conditions(r.When))
	}
	for _, s := range e.sets {
		c.sets = append(c.sets, p.Conditions(s.When))
	}
	for _, n := range e.setNodes {
		c.members = append(c.members, p.member(p.node(n.path)))
	}
	return c
}

// addressPaths are the members with a device's addresses, in OpenRTB 2 and 3.
var addressPaths = []string{"device.ip", "device.ipv6", "openrtb.request.context.device.ip", "openrtb.request.context.device.ipv6"}

// ShortenAddresses is an Edit that shortens the addresses of the device with header.Shorten. It removes an
// address member whose value is no address.
var ShortenAddresses = func() *Edit {
	e := &Edit{shortens: true}
	for _, path := range addressPaths {
		e.paths.node(MustParsePath(path)).shortened = true
	}
	return e
}()

// Apply appends the edited body to dst, and returns true. If nothing changes, or if the body is unreadable,
// it returns dst and false, and f.Reason says which is the case. The edited body is at most e.Growth bytes longer
// than body. If e only removes and shortens, dst may be body[:0].
func (e *Edit) Apply(dst, body []byte, f *Facts) (edited []byte, changed bool) {
	e.paths.Scan(body, f)
	if f.Reason == Readable && !e.plan(&e.compiled, body, f) {
		f.Reason = WrongType
	}
	if f.Reason != Readable {
		return dst, false
	}
	return e.change(dst, body, f)
}

// change is Apply for a body that plan has accepted.
func (e *Edit) change(dst, body []byte, f *Facts) (edited []byte, changed bool) {
	start, text := len(dst), body
	if e.shortens || slices.Contains(f.removes, true) {
		dst, changed = e.remove(dst, body, f)
		if changed {
			text = dst[start:]
		}
	}
	if slices.ContainsFunc(f.states, state.isChanged) {
		end := len(dst)
		dst = e.appendObject(dst, source{text: text, rule: clientsBody}, span{0, len(text)}, e.paths.root.setNodes, f)
		dst, changed = dst[:start+copy(dst[start:], dst[end:])], true
	}
	return dst, changed
}

// remove appends body without the members that are removed, and with shortened addresses, and returns true. If that is
// body itself, it returns dst and false. f.members are those of the result.
func (e *Edit) remove(dst, body []byte, f *Facts) (edited []byte, changed bool) {
	clear(f.members)
	s := scanner{body: body, facts: f, editor: editor{edit: e, out: dst, start: len(dst)}}
	s.document(&e.paths.root)
	if s.reason != Readable {
		panic("BUG: an edit made a body unreadable: " + s.reason.String())
	}
	if s.editor.copied == 0 {
		return dst, false
	}
	return append(s.editor.out, body[s.editor.copied:]...), true
}

// editor removes members, and shortens addresses, while a scanner examines the body.
type editor struct {
	edit   *Edit
	out    []byte // out[start:] is the edited form of body[:copied]
	start  int
	copied int
}

// written returns the offset, in the edited body, of the byte that has the offset i in the body.
func (e *editor) written(i int) int { return len(e.out) - e.start + i - e.copied }

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
