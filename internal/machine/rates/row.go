package rates

import "sync/atomic"

// Row counts failures in a row, and notes the groups that caused them. It is safe for concurrent use.
type Row struct {
	length atomic.Int64
	groups atomic.Uint32
}

// Failed adds a failure of group g, and returns the number of failures in the row.
func (r *Row) Failed(g Group) int {
	r.groups.Or(uint32(g.set()))
	return int(r.length.Add(1))
}

// End ends the row after a success. An empty row is only read, so that cores do not compete for its cache line.
func (r *Row) End() {
	if r.length.Load() != 0 {
		r.length.Store(0)
		r.groups.Store(0)
	}
}

// Length returns the number of failures in the row.
func (r *Row) Length() int { return int(r.length.Load()) }

// Groups returns the groups that caused the failures.
func (r *Row) Groups() Groups { return Groups(r.groups.Load()) }
