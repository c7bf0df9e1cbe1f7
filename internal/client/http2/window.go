package http2

import "slices"

// queue holds streams that wait for the connection's window or for room in the buffer, in their order.
type queue struct {
	all []*Stream
}

func (q *queue) push(s *Stream) {
	if !s.queued {
		s.queued = true
		s.holds++
		q.all = append(q.all, s)
	}
}

func (q *queue) first() *Stream {
	if len(q.all) == 0 {
		return nil
	}
	return q.all[0]
}

func (q *queue) remove(s *Stream) {
	s.queued = false
	i := slices.Index(q.all, s)
	q.all = slices.Delete(q.all, i, i+1)
}

// take removes and returns the first stream, or nil. If there is no window, it takes the first stream that needs no
// window.
func (q *queue) take(window bool) *Stream {
	for i, s := range q.all {
		if !window && !s.needsNoWindow() {
			continue
		}
		s.queued = false
		q.all[i] = nil
		if i == 0 {
			q.all = q.all[1:]
		} else {
			q.all = slices.Delete(q.all, i, i+1)
		}
		if len(q.all) == 0 {
			q.all = nil
		}
		return s
	}
	return nil
}
