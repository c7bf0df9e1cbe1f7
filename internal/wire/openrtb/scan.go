package openrtb

import "adbuffer/internal/wire/syntax"

// Scan examines body in one pass, and sets f.
func (p *Paths) Scan(body []byte, f *Facts) {
	f.reset(p)
	s := scanner{body: body, facts: f}
	s.document(&p.root)
	f.Reason, f.malformed = s.reason, s.malformed
	p.setConsent(body, f)
}

// Refuse sets f for a body that is unreadable because of its header fields.
func (p *Paths) Refuse(why Reason, f *Facts) {
	f.reset(p)
	f.Reason = why
	p.setConsent(nil, f)
}

// scanner examines one body. Its methods return the offset after the text that they examined, or -1 to end the scan:
// at an error, with reason set, or after the first value at node only (if not nil), with found set and no reason.
type scanner struct {
	body   []byte
	facts  *Facts
	reason Reason
	only   *node  // stop at the first member of this node; nil = examine the whole body
	found  span   // value of the member at which the scan stopped
	editor editor // editor.edit is nil if the body is not edited

	// malformed says that the entry being scanned is malformed: a required member is missing or null, a value has a
	// wrong kind, or an array in it has only malformed entries. Too many malformed entries make what is around them
	// malformed too. An entry is an array element that is left out if it is malformed (see entries.go). Outside of
	// entries, malformed is about the document.
	malformed bool
	id        span // id of the entry being scanned
}

func (s *scanner) fail(why Reason) int {
	if s.reason == Readable {
		s.reason = why
	}
	return -1
}

// document examines the whole body.
func (s *scanner) document(root *node) {
	i := syntax.SkipJSONBlanks(s.body, 0)
	if syntax.JSONByte(s.body, i) != '{' {
		s.notObject(i)
		return
	}
	i = s.object(i, 1, root)
	if i >= 0 && syntax.SkipJSONBlanks(s.body, i) != len(s.body) {
		s.reason = Syntax
	}
}

// notObject sets the reason for a body that does not start with a brace.
func (s *scanner) notObject(i int) {
	if i == len(s.body) {
		s.reason = NotObject
		return
	}
	switch end := s.skip(i, 0); {
	case end < 0: // reason is set
	case syntax.SkipJSONBlanks(s.body, end) == len(s.body):
		s.reason = NotObject
	default:
		s.reason = Syntax
	}
}

// object examines the object at s.body[i]. The children of n are its known members.
func (s *scanner) object(i, depth int, n *node) int {
	if depth > MaxDepth {
		return s.fail(Depth)
	}
	b, serial := s.body, s.facts.nextSerial()
	i++
	// keptEnd is the end of the last kept member. If the object ends with removed members, cutLast cuts from keptEnd,
	// so that the comma after the last kept member goes too. firstRemoved is the start of the first member that was
	// removed since; -1 = none.
	keptEnd, firstRemoved := i, -1
	i = syntax.SkipJSONBlanks(b, i)
	if syntax.JSONByte(b, i) == '}' {
		s.malformed = s.malformed || len(n.required) > 0
		return i + 1
	}
	for {
		key := i
		i = syntax.SkipJSONString(b, i)
		if i < 0 {
			return s.fail(Syntax)
		}
		child := n.child(s.facts.content(b[key:i]))
		i = syntax.SkipJSONBlanks(b, i)
		if syntax.JSONByte(b, i) != ':' {
			return s.fail(Syntax)
		}
		value := syntax.SkipJSONBlanks(b, i+1)
		removed := false
		if child == nil {
			i = s.skip(value, depth)
		} else {
			if s.facts.seen[child.id] == serial && s.only == nil {
				return s.fail(Duplicate)
			}
			s.facts.seen[child.id] = serial
			removed = s.editor.edit != nil && child.isRemoved(s.facts)
			i = s.value(value, depth, child, removed)
		}
		if i < 0 {
			return -1
		}
		end := i
		if child != nil && child.shortened && s.editor.edit != nil {
			removed = !s.editor.shorten(b, value, end, s.facts)
		}
		i = syntax.SkipJSONBlanks(b, i)
		c := syntax.JSONByte(b, i)
		if c != ',' && c != '}' {
			return s.fail(Syntax)
		}
		if child != nil && child == s.only {
			s.found = span{value, end}
			return -1
		}
		if removed && firstRemoved < 0 {
			firstRemoved = key
		}
		if c == '}' {
			if removed {
				s.editor.cutLast(b, keptEnd, firstRemoved, end)
			}
			for _, r := range n.required {
				s.malformed = s.malformed || s.facts.seen[r.id] != serial
			}
			return i + 1
		}
		i = syntax.SkipJSONBlanks(b, i+1)
		if removed {
			s.editor.cut(b, key, i)
		} else {
			keptEnd, firstRemoved = end, -1
		}
	}
}

// value examines the value at s.body[i], in a container of the given depth. It does not examine the members
// of a removed value.
func (s *scanner) value(i, depth int, n *node, removed bool) int {
	var end int
	start := i
	if s.editor.edit != nil {
		start = s.editor.written(i)
	}
	switch c := syntax.JSONByte(s.body, i); {
	case removed:
		end = s.skip(i, depth)
	case c == '{' && len(n.children) > 0:
		end = s.object(i, depth+1, n)
	case c == '[' && (n.element != nil || n.indexed):
		end = s.array(i, depth+1, n)
	default:
		end = s.skip(i, depth)
	}
	if end < 0 {
		return -1
	}
	f := s.facts
	if s.editor.edit != nil { // all other facts are those of the body before the edit
		if n.member != nil && !removed {
			f.members[n.member.index] = span{start, s.editor.written(end)}
		}
		return end
	}
	if n.kind != anyKind {
		s.check(n, i, end)
	}
	if n.exists != nil {
		f.set(n.exists.fact)
	}
	if n.values != nil {
		f.observe(n, s.body[i:end])
	}
	if n.member != nil {
		f.members[n.member.index] = span{i, end}
	}
	if n.visit != nil {
		n.visit(s.body[i:end])
	}
	return end
}

// array examines the array at s.body[i]. The children of n are its known elements.
func (s *scanner) array(i, depth int, n *node) int {
	if depth > MaxDepth {
		return s.fail(Depth)
	}
	if n.element != nil && n.element.isEntry {
		return s.entries(i, depth, n.element)
	}
	i = syntax.SkipJSONBlanks(s.body, i+1)
	if syntax.JSONByte(s.body, i) == ']' {
		return i + 1
	}
	for index := 0; ; index++ {
		start, child := i, n.at(index)
		if child == nil {
			i = s.skip(i, depth)
		} else {
			i = s.value(i, depth, child, false)
		}
		if i < 0 {
			return -1
		}
		end := i
		i = syntax.SkipJSONBlanks(s.body, i)
		c := syntax.JSONByte(s.body, i)
		if c != ',' && c != ']' {
			return s.fail(Syntax)
		}
		if child != nil && child == s.only {
			s.found = span{start, end}
			return -1
		}
		if c == ']' {
			return i + 1
		}
		i = syntax.SkipJSONBlanks(s.body, i+1)
	}
}

// skip checks only the syntax and the depth of the value at s.body[i], in a container of the given depth.
func (s *scanner) skip(i, depth int) int {
	switch end := syntax.SkipJSON(s.body, i, depth, MaxDepth); end {
	case syntax.NotJSON:
		return s.fail(Syntax)
	case syntax.TooDeep:
		return s.fail(Depth)
	default:
		return end
	}
}

func (f *Facts) nextSerial() uint32 {
	f.serial++
	return f.serial
}
