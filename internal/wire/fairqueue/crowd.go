package fairqueue

// crowd knows of which key most requests wait. The zero value is empty. Adding and removing a request takes time
// that grows with the logarithm of the number of keys.
type crowd[T any] struct {
	newest map[uint64]*Item[T] // the newest waiting request of each key
	heap   []*Item[T]          // the same requests: no request is larger than its parent, at (index-1)/2
}

// member links a waiting request with the others of its key.
type member[T any] struct {
	key          uint64
	older, newer *Item[T] // nil: it is the oldest or the newest of its key

	// These fields are valid in the newest request of a key.

	waiting int // requests of the key
	at      int // index in crowd.heap
}

// maxTied bounds how many keys with equally many requests largest compares.
const maxTied = 64

// largest returns the newest request of the key with most requests, or nil. Of keys with equally many it takes the
// one whose request waits in the queue that has paid most, then the newest request.
func (c *crowd[T]) largest(paid *[Count]float64) *Item[T] {
	if len(c.heap) == 0 {
		return nil
	}
	found := c.heap[0]
	tied := [maxTied]int{} // indices of the heap; the children of a request that is not tied are not tied
	n := 1
	for i := 0; i < n; i++ {
		it := c.heap[tied[i]]
		if a, b := paid[it.queue-1], paid[found.queue-1]; a > b || a == b && it.n > found.n {
			found = it
		}
		for child := 2*tied[i] + 1; child <= 2*tied[i]+2 && child < len(c.heap) && n < maxTied; child++ {
			if c.heap[child].ofKey.waiting == found.ofKey.waiting {
				tied[n] = child
				n++
			}
		}
	}
	return found
}

// add adds it, which is newer than all others.
func (c *crowd[T]) add(it *Item[T], key uint64) {
	if c.newest == nil {
		c.newest = make(map[uint64]*Item[T])
	}
	before := c.newest[key]
	it.ofKey = member[T]{key: key, older: before, waiting: 1}
	c.newest[key] = it
	if before == nil {
		c.heap = append(c.heap, nil)
		c.place(it, len(c.heap)-1)
	} else {
		before.ofKey.newer = it
		it.ofKey.waiting += before.ofKey.waiting
		c.place(it, before.ofKey.at)
	}
	c.rise(it)
}

// remove removes it.
func (c *crowd[T]) remove(it *Item[T]) {
	m := &it.ofKey
	newest := c.newest[m.key]
	waiting, at := newest.ofKey.waiting-1, newest.ofKey.at
	if m.older != nil {
		m.older.ofKey.newer = m.newer
	}
	if m.newer != nil {
		m.newer.ofKey.older = m.older
	} else {
		newest = m.older
	}
	if newest == nil {
		delete(c.newest, m.key)
		c.removeAt(at)
	} else {
		c.newest[m.key] = newest
		newest.ofKey.waiting = waiting
		c.place(newest, at)
		c.sink(newest)
	}
	*m = member[T]{} // the request's memory may be used again for another key
}

// removeAt removes the request at an index of the heap.
func (c *crowd[T]) removeAt(at int) {
	end := len(c.heap) - 1
	last := c.heap[end]
	c.heap[end] = nil
	c.heap = c.heap[:end]
	if at < end {
		c.place(last, at)
		c.rise(last)
		c.sink(last)
	}
}

func (c *crowd[T]) place(it *Item[T], at int) {
	c.heap[at], it.ofKey.at = it, at
}

// larger reports whether more requests of a's key wait than of b's, or as many and a is newer.
func larger[T any](a, b *Item[T]) bool {
	if a.ofKey.waiting != b.ofKey.waiting {
		return a.ofKey.waiting > b.ofKey.waiting
	}
	return a.n > b.n
}

// rise moves it towards the root of the heap until its parent is larger.
func (c *crowd[T]) rise(it *Item[T]) {
	for it.ofKey.at > 0 {
		parent := c.heap[(it.ofKey.at-1)/2]
		if !larger(it, parent) {
			return
		}
		c.swap(it, parent)
	}
}

// sink moves it away from the root until its children are smaller.
func (c *crowd[T]) sink(it *Item[T]) {
	for {
		largest := it
		for child := 2*it.ofKey.at + 1; child <= 2*it.ofKey.at+2 && child < len(c.heap); child++ {
			if larger(c.heap[child], largest) {
				largest = c.heap[child]
			}
		}
		if largest == it {
			return
		}
		c.swap(it, largest)
	}
}

func (c *crowd[T]) swap(a, b *Item[T]) {
	at := a.ofKey.at
	c.place(a, b.ofKey.at)
	c.place(b, at)
}
