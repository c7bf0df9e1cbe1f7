package openrtb

import (
	"slices"
	"strconv"
	"strings"

	"adbuffer/internal/wire/syntax"
	"adbuffer/internal/wire/tcf"
)

// Paths holds all conditions and members that are read from one kind of body, compiled for a single pass.
// After the last addition, any number of goroutines may use it. The zero value has no paths.
type Paths struct {
	// AnyCase ignores the case of ASCII letters in names.
	AnyCase bool

	root    node
	nodes   int32           // number of nodes below root
	facts   int32           // number of facts
	members int32           // number of members
	consent *consentMembers // nil = no condition has TCF
}

// node stands for a member at a path, and links to the nodes of longer paths.
type node struct {
	id       int32
	anyCase  bool // the case of the children's names is ignored
	children []child
	byName   map[string]*node // the children, if there are many; otherwise nil
	element  *node            // the child with the name "*", or nil
	indexed  bool             // if the value is an array, the names of children may be indices of its elements

	exists *Test              // the test whether the body has the member; nil if no condition needs it
	values *values            // the facts that depend on the value; nil if no condition needs it
	member *Member            // nil = the value is not read
	visit  func(value []byte) // called with each value of the member, if not nil

	kind       kind    // the required kind of value; any other makes the enclosing element with isEntry malformed
	isRequired bool    // an object without this member is malformed
	required   []*node // the children with isRequired
	isEntry    bool    // the node stands for the elements of an array, of which malformed ones are left out
	isEntryID  bool    // the value is the id of the enclosing element with isEntry

	removals  []int32    // the removals of an Edit that remove the member, as indices of Edit.removals
	shortened bool       // an Edit shortens the address that is the value
	setNode   *setNode   // nil = the member is not on the path of a Set
	setNodes  []*setNode // of the children
}

// child is a node with its name. Comparing length and first byte excludes most other names.
type child struct {
	name  string
	first byte
	*node
}

// manyChildren is the number of children from which a map finds a child faster than a linear search.
const manyChildren = 17

// values holds the facts that follow from a value: those of strings by content, those of numbers and
// booleans by canonical form.
type values struct{ strings, others map[string][]int32 }

// Condition requires a member at Path whose value equals one of Values. Without Values, the member may have any value,
// even null. If Path contains "*", it may match several members, of which one is enough. With Not, there must be no such
// member.
//
// If TCF is not nil, Path and Values are ignored. The vendor must then be allowed to process the request, or, with Not,
// must not be.
type Condition struct {
	Path   Path
	Values []Value
	Not    bool
	TCF    *tcf.Requirement
}

// Test is a compiled Condition. It holds for a body if Facts.has(fact) equals want. If tcf is not nil, fact is unused, and
// the test holds if Decision.Allows equals want.
type Test struct {
	fact int32
	want bool
	tcf  *tcf.Requirement
}

// Member is a member whose value is read. Its path does not contain "*".
type Member struct{ index int32 }

// node returns the node of path, and adds it if necessary. Scan treats a body as unreadable if one of its objects has
// the member of a node more than once.
func (p *Paths) node(path Path) *node {
	n := &p.root
	for _, name := range path {
		n = p.below(n, name)
	}
	return n
}

// below returns the node of a name below n, which it adds if necessary.
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

// require makes an object at n malformed if it lacks one of these children.
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

// isIndex reports whether a name in a path may be the index of an element: a whole number without leading zeros.
func isIndex(name string) bool {
	return strings.Trim(name, "0123456789") == "" && (name[0] != '0' || len(name) == 1)
}

// at returns the child that stands for the element of an array with this index, or nil.
func (n *node) at(index int) *node {
	if n.element != nil {
		return n.element
	}
	var digits [20]byte
	return n.child(strconv.AppendInt(digits[:0], int64(index), 10))
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
	if c.TCF != nil {
		p.readConsent()
		return Test{tcf: c.TCF, want: !c.Not}
	}
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

// Conditions compiles a list of conditions.
func (p *Paths) Conditions(all []Condition) []Test {
	tests := make([]Test, len(all))
	for i := range all {
		tests[i] = p.Condition(&all[i])
	}
	return tests
}

func (p *Paths) newFact() int32 {
	p.facts++
	return p.facts - 1
}

// Member makes the value at path readable with Facts.Value. A name that is a whole number also stands for the array
// element with that index, as in a JSON pointer (RFC 6901, section 4). path must not contain "*". If path contains an
// index, no other path of p may contain "*" either.
func (p *Paths) Member(path Path) Member {
	if slices.Contains(path, AnyElement) {
		panic("BUG: several members may have the path " + path.String())
	}
	n := &p.root
	for _, name := range path {
		n.indexed = n.indexed || isIndex(name)
		n = p.below(n, name)
	}
	return p.member(n)
}

func (p *Paths) member(n *node) Member {
	if n.member == nil {
		n.member = &Member{index: p.members}
		p.members++
	}
	return *n.member
}
