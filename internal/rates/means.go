package rates

import "sync/atomic"

// Means collects values by the group of clients that they came from. It is safe for concurrent use;
// a value that is added while Take runs may be taken in part.
type Means [allGroups]struct{ count, sum atomic.Int64 }

// Add adds a value of g.
func (m *Means) Add(g Group, value int64) {
	m[g].sum.Add(value)
	m[g].count.Add(1)
}

// Count returns the number of values.
func (m *Means) Count() (n int64) {
	for g := range m {
		n += m[g].count.Load()
	}
	return n
}

// Take removes all values, and returns their number and the mean that counts: without the groups that
// raise it most, if the other groups have at least enough values. See Group. Without values the mean
// is 0.
func (m *Means) Take(enough int) (n int64, mean float64) {
	var groups [allGroups]sum
	for g := range m {
		count := m[g].count.Swap(0)
		n += count
		groups[g] = sum{float64(count), float64(m[g].sum.Swap(0))}
	}
	return n, trimmedMean(&groups, float64(enough))
}
