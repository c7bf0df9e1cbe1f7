package load

// queue is a FIFO queue. It grows on demand and never shrinks.
type queue[T any] struct {
	items []T
	head  int
	count int
}

func (q *queue[T]) push(x T) {
	if q.count == len(q.items) {
		items := make([]T, max(1, 2*len(q.items)))
		copy(items[copy(items, q.items[q.head:]):], q.items[:q.head])
		q.items, q.head = items, 0
	}
	i := q.head + q.count
	if i >= len(q.items) {
		i -= len(q.items)
	}
	q.items[i] = x
	q.count++
}

func (q *queue[T]) first() *T { return &q.items[q.head] }

func (q *queue[T]) pop() T {
	x := q.items[q.head]
	if q.head++; q.head == len(q.items) {
		q.head = 0
	}
	q.count--
	return x
}
