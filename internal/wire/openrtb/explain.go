package openrtb

// Seen are values that a condition sees in a body, as JSON without blanks around them.
type Seen struct {
	Holds  bool
	Values [][]byte // the first maxSeen members at the path
	More   bool     // there are more members
}

const maxSeen = 5

// Explain returns what c sees in body, for explanations to people. It is slow. An unreadable body, for whatever
// path, is the caller's matter.
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
