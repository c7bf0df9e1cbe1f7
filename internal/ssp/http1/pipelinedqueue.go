package http1

// abandon returns err to the caller of e. The response of e is dropped when it arrives.
func (r *reader) abandon(e *entry, err error) {
	ex := e.ex
	e.ex = nil
	if r.now.Before(e.deadline) {
		e.deadline = r.now // the time of linger begins
	}
	if e == r.at(0) {
		if r.started {
			r.response.discard = true
		}
		r.noteOverdue() // before the caller returns, and perhaps sends another request
	}
	ex.Times.Done = r.now
	ex.Complete(err)
}

// releaseEntry frees the place of e, which is no longer in the queue. If the caller of e still waits, it gets err.
func (r *reader) releaseEntry(e *entry, err error) {
	r.outstanding.Add(-1)
	r.owner.Freed(max(0, r.now.Sub(e.acquired)), e.ticket)
	if e.ex != nil {
		e.ex.Times.Done = r.now
		e.ex.Complete(err)
	}
}

// oldest returns the entry whose response comes next, or nil.
func (r *reader) oldest() *entry {
	if r.n == 0 {
		r.mu.Lock()
		r.admitLocked()
		r.mu.Unlock()
		if r.n == 0 {
			return nil
		}
	}
	return &r.queue[r.head]
}

// admitLocked moves the entries of arrived into the queue.
func (r *reader) admitLocked() {
	for _, e := range r.arrived {
		r.n++
		*r.at(r.n - 1) = e
	}
	clear(r.arrived)
	r.arrived = r.arrived[:0]
}

// at returns the i-th oldest entry.
func (r *reader) at(i int) *entry {
	i += r.head
	if i >= len(r.queue) {
		i -= len(r.queue)
	}
	return &r.queue[i]
}

func (r *reader) pop() entry {
	e := r.queue[r.head]
	r.queue[r.head] = entry{}
	r.head++
	if r.head == len(r.queue) {
		r.head = 0
	}
	r.n--
	return e
}

// hasWaiting reports whether a caller waits for a response.
func (r *reader) hasWaiting() bool {
	r.mu.Lock()
	r.admitLocked()
	r.mu.Unlock()
	for i := range r.n {
		if r.at(i).ex != nil {
			return true
		}
	}
	return false
}
