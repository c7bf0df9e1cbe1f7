package openrtb

import (
	"bytes"
	"slices"

	"adbuffer/internal/wire/syntax"
)

// Set gives the member at Path a value, if all conditions hold. Path must not contain "*". Parents that the body
// does not have become objects.
type Set struct {
	Path Path
	When []Condition
	How  How
	// Value is JSON without blanks around it and without duplicate members, and nests at most MaxDepth levels
	// together with Path.
	Value []byte
}

// How is what a Set does.
type How uint8

// The kinds of sets.
const (
	Replace How = iota // the member has Value afterwards, whether the body had the member or not
	Default            // the member gets Value only if the body does not have the member
	Append             // Value becomes the last element of the array at Path; without the member, of a new array
)

// setNode is a member on the path of at least one Set.
type setNode struct {
	path    Path
	index   int      // in Edit.setNodes, Facts.states and compiled.members
	parent  *setNode // nil = the root
	node    *node    // of the Edit's paths
	label   []byte   // the name in quotes, and a colon
	appends []int32  // the rules that append to the member
}

// rule is a Set, compiled.
type rule struct {
	path   []*setNode        // the set nodes from below the root to the member at Set.Path
	values map[*setNode]span // the values, in Set.Value, of the set nodes below that member; empty if there is no such value
}

// state is what a set node has become after the rules so far.
type state struct {
	kind          byte  // the first byte of the value; 0 = there is no such member
	rule          int32 // the rule whose value the set node has, or ruleOfParent or noRule
	firstAppend   int32 // the first rule that may append to the value
	changedWithin bool  // elements are appended to the value, or a set node below it has changed
}

// Numbers in place of a rule's, for values that are not the value of a Set.
const (
	ruleOfParent = -1 // the value is within the text of the parent's value
	noRule       = -2 // the value is a new object or array, which consists of set nodes and appended elements
	clientsBody  = -3 // the text is the body
)

func (s state) isChanged() bool { return s.rule != ruleOfParent || s.changedWithin }

// source is a text, and the rule that it is the value of, or clientsBody or noRule.
type source struct {
	text []byte
	rule int32
}

func (e *Edit) addSetNodes() {
	for i := range e.sets {
		set := &e.sets[i]
		r, n := rule{}, &e.paths.root
		e.growth += len(set.Value) + len(`,`)
		for depth, name := range set.Path {
			above := n
			n = e.paths.below(n, name)
			if n.setNode == nil {
				n.setNode = &setNode{path: set.Path[:depth+1], index: len(e.setNodes), parent: above.setNode, node: n, label: append(syntax.AppendJSONString(nil, []byte(name)), ':')}
				e.setNodes, above.setNodes = append(e.setNodes, n.setNode), append(above.setNodes, n.setNode)
			}
			r.path = append(r.path, n.setNode)
			e.growth += len(n.setNode.label) + len(`,{}`)
		}
		if set.How == Append {
			n.setNode.appends = append(n.setNode.appends, int32(i))
		}
		e.rules = append(e.rules, r)
	}
}

// readValues finds the set nodes within the values of sets.
func (e *Edit) readValues() {
	for i := range e.rules {
		r, set, f := &e.rules[i], &e.sets[i], new(Facts)
		f.reset(&e.paths)
		s := scanner{body: set.Value, facts: f}
		if s.value(0, 0, r.path[len(r.path)-1].node, false) != len(set.Value) {
			panic("BUG: the value of a set is not JSON: " + string(set.Value))
		}
		r.values = make(map[*setNode]span)
		for _, p := range e.setNodes {
			if len(p.path) > len(set.Path) && slices.Equal(p.path[:len(set.Path)], set.Path) {
				r.values[p] = f.members[e.compiled.members[p.index].index]
			}
		}
	}
}

// kindOf returns the first byte of a value, or 0 if there is none.
func kindOf(value []byte) byte { return syntax.JSONByte(value, 0) }

// Growth returns how many bytes longer than the body the edited body may be.
func (e *Edit) Growth() int { return e.growth }

// Sets reports whether a Set may change the root's member of this name.
func (e *Edit) Sets(name string) bool {
	return slices.ContainsFunc(e.sets, func(s Set) bool { return s.Path[0] == name })
}

// Check finds out whether an Edit can be applied to a body that another Paths has scanned.
type Check struct {
	Edit     *Edit
	compiled compiled
}

// NewCheck adds all paths and conditions of e to p, so that p finds a body unreadable if e does.
func (e *Edit) NewCheck(p *Paths) *Check { return &Check{Edit: e, compiled: e.compile(p)} }

// Fits reports whether the values on the paths of the sets have the right types, so that Edit.Apply will not find
// them of WrongType. f holds the facts about body, which must be readable.
func (c *Check) Fits(body []byte, f *Facts) bool { return c.Edit.plan(&c.compiled, body, f) }

// plan decides which Removals and Sets apply, and sets f.states to what the set nodes become. It returns false if a set
// node has a value of the wrong type.
func (e *Edit) plan(c *compiled, body []byte, f *Facts) bool {
	f.removes, f.sets = f.holdEach(f.removes, c.removals), f.holdEach(f.sets, c.sets)
	f.states = resized(f.states, len(e.setNodes))
	for i, p := range e.setNodes {
		s := &f.states[i]
		*s = state{rule: ruleOfParent}
		if !p.isRemoved(f) {
			s.kind = kindOf(f.Value(c.members[i], body))
		}
	}
	for i := range e.rules {
		if f.sets[i] && !e.apply(i, f.states) {
			return false
		}
	}
	return true
}

// isRemoved reports whether a Removal removes the set node or one of its parents.
func (p *setNode) isRemoved(f *Facts) bool {
	return p != nil && (p.node.isRemoved(f) || p.parent.isRemoved(f))
}

// isRemoved reports whether a Removal removes the member at n.
func (n *node) isRemoved(f *Facts) bool {
	return slices.ContainsFunc(n.removals, func(i int32) bool { return f.removes[i] })
}

// apply applies a rule. It returns false if a set node has a value of the wrong type.
func (e *Edit) apply(i int, states []state) bool {
	set, r := &e.sets[i], &e.rules[i]
	last := len(r.path) - 1
	parents, target := r.path[:last], &states[r.path[last].index]
	for _, p := range parents {
		if kind := states[p.index].kind; kind != 0 && kind != '{' {
			return false
		}
	}
	switch {
	case set.How == Default && target.kind != 0:
		return true
	case set.How == Append && target.kind != 0 && target.kind != '[':
		return false
	}
	for _, p := range parents {
		s := &states[p.index]
		if s.kind == 0 {
			*s = state{kind: '{', rule: noRule}
		}
		s.changedWithin = true
	}
	switch {
	case set.How != Append:
		*target = state{kind: set.Value[0], rule: int32(i), firstAppend: int32(i) + 1}
		for p, value := range r.values {
			states[p.index] = state{kind: kindOf(set.Value[value.start:value.end]), rule: ruleOfParent, firstAppend: int32(i) + 1}
		}
		return true
	case target.kind == 0:
		*target = state{kind: '[', rule: noRule, firstAppend: int32(i)}
	}
	target.changedWithin = true
	return true
}

// spanOf returns where the value of p is in the text of a source. The span is empty if the text has no such value.
func (e *Edit) spanOf(p *setNode, in source, f *Facts) span {
	switch {
	case in.rule == clientsBody:
		return f.members[e.compiled.members[p.index].index]
	case in.rule >= 0:
		return e.rules[in.rule].values[p]
	}
	return span{}
}

// appendObject appends the object at of in a source, with what its members among the set nodes have become.
func (e *Edit) appendObject(out []byte, in source, of span, members []*setNode, f *Facts) []byte {
	at := of.start
	for {
		var next *setNode
		value := span{of.end, of.end}
		for _, p := range members {
			if s := e.spanOf(p, in, f); s.start < s.end && s.start >= at && s.start < value.start && f.states[p.index].isChanged() {
				next, value = p, s
			}
		}
		if next == nil {
			break
		}
		out = append(out, in.text[at:value.start]...)
		out = e.appendSetNode(out, next, in, value, f)
		at = value.end
	}
	last := endOfContent(in.text[:of.end])
	out = append(out, in.text[at:last]...)
	isFirst := in.text[last-1] == '{'
	for _, p := range members {
		if s := e.spanOf(p, in, f); s.start < s.end || f.states[p.index].kind == 0 {
			continue
		}
		if !isFirst {
			out = append(out, ',')
		}
		isFirst = false
		out = append(out, p.label...)
		out = e.appendSetNode(out, p, source{}, span{}, f)
	}
	return append(out, in.text[last:of.end]...)
}

// appendSetNode appends the value of p. The value was at old in a source.
func (e *Edit) appendSetNode(out []byte, p *setNode, in source, old span, f *Facts) []byte {
	s := f.states[p.index]
	if s.rule >= 0 {
		in.text = e.sets[s.rule].Value
	} else if s.rule == noRule {
		in.text = emptyArray
		if s.kind == '{' {
			in.text = emptyObject
		}
	}
	if s.rule != ruleOfParent {
		in.rule, old = s.rule, span{0, len(in.text)}
	}
	switch {
	case !s.changedWithin:
		return append(out, in.text[old.start:old.end]...)
	case s.kind == '{':
		return e.appendObject(out, in, old, p.node.setNodes, f)
	}
	last := endOfContent(in.text[:old.end])
	out = append(out, in.text[old.start:last]...)
	isFirst := in.text[last-1] == '['
	for _, i := range p.appends {
		if i < s.firstAppend || !f.sets[i] {
			continue
		}
		if !isFirst {
			out = append(out, ',')
		}
		isFirst = false
		out = append(out, e.sets[i].Value...)
	}
	return append(out, in.text[last:old.end]...)
}

var emptyObject, emptyArray = []byte("{}"), []byte("[]")

// endOfContent returns the offset after the last member or element of the object or array at the end of text, or after
// the opening bracket if there is none.
func endOfContent(text []byte) int {
	const blanks = " \t\r\n"
	text = bytes.TrimRight(text, blanks)
	return len(bytes.TrimRight(text[:len(text)-1], blanks))
}
