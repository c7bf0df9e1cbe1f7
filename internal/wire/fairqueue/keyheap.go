package fairqueue

// keyHeap finds the key with most waiting requests. The zero value is empty. Adding and removing a request takes time
// that grows with the logarithm of the number of keys.
type keyHeap[T any] struct {
	newest map[uint64]*Item[T] // the newest waiting request of each key
	heap   []*Item[T]          // the same requests: no request is larger than its parent, at (index-1)/2
}

// keyLinks links a waiting request with the other waiting requests of its key.
type keyLinks[T any] struct {
	key          uint64
	older, newer *Item[T] // the neighbours among the key's requests, nil at the ends

	// These fields are valid in the newest request of a key.

	waiting int // number of waiting requests of the key
	index   int // index in keyHeap.heap
}

// maxTied bounds how many keys with equally many requests largest compares.
const maxTied = 64

// largest returns the newest request of the key with most requests, or nil. Of keys with equally many requests it
// chooses the key whose newest request waits in the queue that has paid most, and of those the newest request.
func (c *keyHeap[T]) largest(paid *[Count]float64) *Item[T] {
	if len(c.heap) == 0 {
		return nil
	}
	found := c.heap[0]
	tied := [maxTied]int{} // indices of the heap; the children of a request that is not tied are not tied
	n := 1
	for i := 0; i < n; i++ {
		item := c.heap[tied[i]]
		if a, b := paid[item.queue-1], paid[found.queue-1]; a > b || a == b && item.number > found.number {
			found = item
		}
		for child := 2*tied[i] + 1; child <= 2*tied[i]+2 && child < len(c.heap) && n < maxTied; child++ {
			if c.heap[child].links.waiting == found.links.waiting {
				tied[n] = child
				n++
			}
		}
	}
	return found
}

// add adds item, which must be newer than all other requests.
func (c *keyHeap[T]) add(item *Item[T], key uint64) {
	if c.newest == nil {
		c.newest = make(map[uint64]*Item[T])
	}
	before := c.newest[key]
	item.links = keyLinks[T]{key: key, older: before, waiting: 1}
	c.newest[key] = item
	if before == nil {
		c.heap = append(c.heap, nil)
		c.place(item, len(c.heap)-1)
	} else {
		before.links.newer = item
		item.links.waiting += before.links.waiting
		c.place(item, before.links.index)
	}
	c.rise(item)
}

// remove removes item.
func (c *keyHeap[T]) remove(item *Item[T]) {
	m := &item.links
	newest := c.newest[m.key]
	waiting, at := newest.links.waiting-1, newest.links.index
	if m.older != nil {
		m.older.links.newer = m.newer
	}
	if m.newer != nil {
		m.newer.links.older = m.older
	} else {
		newest = m.older
	}
	if newest == nil {
		delete(c.newest, m.key)
		c.removeAt(at)
	} else {
		c.newest[m.key] = newest
		newest.links.waiting = waiting
		c.place(newest, at)
		c.sink(newest)
	}
	*m = keyLinks[T]{} // the Item may be used again for another key
}

// removeAt removes the request at an index of the heap.
func (c *keyHeap[T]) removeAt(at int) {
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

func (c *keyHeap[T]) place(item *Item[T], at int) {
	c.heap[at], item.links.index = item, at
}

// larger reports whether a's key has more waiting requests than b's key, or as many and a is newer than b.
func larger[T any](a, b *Item[T]) bool {
	if a.links.waiting != b.links.waiting {
		return a.links.waiting > b.links.waiting
	}
	return a.number > b.number
}

// rise moves item towards the root of the heap until its parent is larger.
func (c *keyHeap[T]) rise(item *Item[T]) {
	for item.links.index > 0 {
		parent := c.heap[(item.links.index-1)/2]
		if !larger(item, parent) {
			return
		}
		c.swap(item, parent)
	}
}

// sink moves item away from the root until its children are smaller.
func (c *keyHeap[T]) sink(item *Item[T]) {
	for {
		largest := item
		for child := 2*item.links.index + 1; child <= 2*item.links.index+2 && child < len(c.heap); child++ {
			if larger(c.heap[child], largest) {
				largest = c.heap[child]
			}
		}
		if largest == item {
			return
		}
		c.swap(item, largest)
	}
}

func (c *keyHeap[T]) swap(a, b *Item[T]) {
	at := a.links.index
	c.place(a, b.links.index)
	c.place(b, at)
}
