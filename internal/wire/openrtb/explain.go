package openrtb

// Seen is the result of Explain: whether a condition holds for a body, and which values the body has at the condition's
// path.
type Seen struct {
	Holds  bool     // the condition holds
	Values [][]byte // the first maxSeen values, as JSON without surrounding blanks
	More   bool     // the body has more values at the path
}

const maxSeen = 5

// Explain returns the values that c compares in body, for explanations to people. It is slow. The caller has checked
// that the body is readable.
func (c *Condition) Explain(body []byte) (seen Seen) {
	var (
		p Paths
		f Facts
	)
	test := p.Condition(c)
	p.node(c.Path).visit = func(value []byte) {
		seen.More = len(seen.Values) == maxSeen
		if !seen.More {
			seen.Values = append(seen.Values, value)
		}
	}
	p.Scan(body, &f)
	seen.Holds = f.Holds(test)
	return seen
}
