package openrtb

import (
	"slices"

	"adbuffer/internal/wire/syntax"
)

// Paths are all paths, conditions and members that are read from one kind of body, compiled for one pass.
// Add to it first; then it does not change, and any number of goroutines may use it. The zero value has no
// path.
type Paths struct {
	// AnyCase ignores the case of ASCII letters in names.
	AnyCase bool

	root    node
	nodes   int32 // below root
	facts   int32
	members int32
}

// node is one name of a path.
type node struct {
	id       int32
	anyCase  bool // of the children's names
	children []child
	byName   map[string]*node // of children, if they are many
	element  *node            // the name "*"

	exists *Test // the fact that a body has such a member; nil if no condition needs it
	values *values
	member *Member // nil = its value is not read
	visit  func(value []byte)

	kind       kind    // of its value; the object or array around a value of another kind is malformed
	isRequired bool    // the object around it is malformed without it
	required   []*node // the children that are required
	isPart     bool    // it is an element that is left out if it is malformed
	isPartID   bool    // its value is the id of the part around it

	removals  []int32 // of an Edit: those that remove it
	shortened bool    // of an Edit
}

// child is a node with its name. A comparison of length and first byte excludes most others.
type child struct {
	name  string
	first byte
	*node
}

// manyChildren is from how many children on a map finds one faster than a comparison with each.
const manyChildren = 17

// values are the facts that follow from a value: a string's by its content, a number's or boolean's by its
// canonical form.
type values struct{ strings, others map[string][]int32 }

// Condition demands a member at Path that equals one of Values, or any member, which may be null, if there are no
// Values. Not demands that there is none. A path with "*" leads to any number of members.
type Condition struct {
	Path   Path
	Values []Value
	Not    bool
}

// Test is a compiled Condition: whether Facts.Holds depends on one fact about the body.
type Test struct {
	fact int32
	want bool
}

// Member is a member whose value is read. Its path has no "*".
type Member struct{ index int32 }

// node returns the node of path. A body is unreadable if an object has a member of a node twice.
func (p *Paths) node(path Path) *node {
	n := &p.root
	for _, name := range path {
		n = p.below(n, name)
	}
	return n
}

// below returns the node of a name below n.
func (p *Paths) below(n *node, name string) *node {
	n.anyCase = p.AnyCase
	next := n.element
	if name != AnyElement {
		next = n.child([]byte(name))
	}
	if next == nil {
		next = &node{id: p.nodes}
		p.nodes++
		n.add(name, next)
	}
	return next
}

func (n *node) add(name string, next *node) {
	if name == AnyElement {
		n.element = next
		return
	}
	n.children = append(n.children, child{name, name[0], next})
	if len(n.children) < manyChildren {
		return
	}
	n.byName = make(map[string]*node)
	for _, c := range n.children {
		n.byName[c.name] = c.node
	}
}

// require makes an object at n malformed without these children.
func (p *Paths) require(n *node, names ...string) {
	for _, name := range names {
		c := p.below(n, name)
		c.isRequired = true
		n.required = append(n.required, c)
	}
}

// child returns the child of this name, or nil.
func (n *node) child(name []byte) *node {
	switch {
	case len(name) == 0:
		return nil
	case n.anyCase:
		return n.childInAnyCase(name)
	case n.byName != nil:
		return n.byName[string(name)]
	}
	for i := range n.children {
		c := &n.children[i]
		if c.first == name[0] && c.name == string(name) {
			return c.node
		}
	}
	return nil
}

func (n *node) childInAnyCase(name []byte) *node {
	const lower = 0x20 // of ASCII letters
	for i := range n.children {
		c := &n.children[i]
		if (c.first^name[0])|lower == lower && syntax.EqualFold(name, c.name) {
			return c.node
		}
	}
	return nil
}

// Condition compiles c. Conditions on the existence of one member share their fact.
func (p *Paths) Condition(c *Condition) Test {
	n := p.node(c.Path)
	if len(c.Values) == 0 {
		if n.exists == nil {
			n.exists = &Test{fact: p.newFact()}
		}
		return Test{fact: n.exists.fact, want: !c.Not}
	}
	if n.values == nil {
		n.values = &values{strings: make(map[string][]int32), others: make(map[string][]int32)}
	}
	t := Test{fact: p.newFact(), want: !c.Not}
	for _, v := range c.Values {
		facts := n.values.strings
		if v.other {
			facts = n.values.others
		}
		facts[v.text] = append(facts[v.text], t.fact)
	}
	return t
}

func (p *Paths) newFact() int32 {
	p.facts++
	return p.facts - 1
}

// Member makes the value of path readable with Facts.Value. path has no "*".
func (p *Paths) Member(path Path) Member {
	if slices.Contains(path, AnyElement) {
		panic("BUG: several members may have the path " + path.String())
	}
	n := p.node(path)
	if n.member == nil {
		n.member = &Member{index: p.members}
		p.members++
	}
	return *n.member
}
