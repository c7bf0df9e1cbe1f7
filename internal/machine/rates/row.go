package rates

import "sync/atomic"

// Row counts failures in a row, and the groups that they came from. It is safe for concurrent use.
type Row struct {
	length atomic.Int64
	groups atomic.Uint32
}

// Failed adds a failure of g, and returns the row's length.
func (r *Row) Failed(g Group) int {
	r.groups.Or(uint32(g.set()))
	return int(r.length.Add(1))
}

// End ends the row. It writes nothing if there is none.
func (r *Row) End() {
	if r.length.Load() != 0 {
		r.length.Store(0)
		r.groups.Store(0)
	}
}

// Length returns the number of failures.
func (r *Row) Length() int { return int(r.length.Load()) }

// Groups returns the groups that failures came from.
func (r *Row) Groups() Groups { return Groups(r.groups.Load()) }
