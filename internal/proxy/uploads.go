package proxy

import (
	"container/list"
	"fmt"
	"sync"

	"adbuffer/internal/upstream"
)

// uploads are the requests whose body is still arriving: server.max_uploads. A request
// whose body arrives with its message head is never among them.
//
// When one more upload begins than the limit allows, or when uploads hold more than half of
// max_buffered_bytes, the oldest is dropped. So clients that never finish their uploads cannot
// exclude other clients' uploads, or take the memory of all other bodies.
type uploads struct {
	mu      sync.Mutex // guards the fields below, and the fields of each upload
	limit   int
	all     list.List // of *upload, the oldest in front
	dropped uint64
	bytes   int64 // held by all
	budget  *upstream.Budget
}

// upload is a request's part in uploads.
type upload struct {
	begun   bool // it was in uploads; only the request's goroutine uses it
	place   *list.Element
	source  stopper
	stopped bool  // another upload has taken its place
	held    int64 // bytes; before begin only the request's goroutine uses it
}

// stopper is the source of a body. After Stop, each read of the body that would wait fails, and so
// does a read that is waiting. Stop must not block.
type stopper interface{ Stop() }

func (u *uploads) setLimit(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.limit = n
}

// begin adds up. It may be called again.
func (u *uploads) begin(up *upload, source stopper) {
	if up.begun {
		return
	}
	up.begun, up.source = true, source
	u.mu.Lock()
	defer u.mu.Unlock()
	up.place = u.all.PushBack(up)
	u.bytes += up.held
	u.shrinkLocked()
}

// grow notes that the body of up holds n more bytes.
func (u *uploads) grow(up *upload, n int64) {
	if !up.begun {
		up.held += n
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if up.place == nil {
		return
	}
	up.held += n
	u.bytes += n
	u.shrinkLocked()
}

// shrinkLocked drops the oldest uploads above the limits. The last one may hold any bytes.
func (u *uploads) shrinkLocked() {
	for u.all.Len() > u.limit || u.all.Len() > 1 && u.bytes > u.budget.Limit()/2 {
		oldest := u.all.Front().Value.(*upload)
		u.removeLocked(oldest)
		oldest.stopped = true
		oldest.source.Stop()
	}
}

func (u *uploads) removeLocked(up *upload) {
	u.all.Remove(up.place)
	u.bytes -= up.held
	up.place = nil
}

// end removes up, and reports whether it was dropped. An upload that was complete when
// it was stopped was not dropped.
func (u *uploads) end(up *upload, complete bool) (dropped bool) {
	if !up.begun {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if up.place != nil {
		u.removeLocked(up)
	}
	if dropped = up.stopped && !complete; dropped {
		u.dropped++
	}
	*up = upload{}
	return dropped
}

// now returns the number of uploads, their limit, and how many were dropped.
func (u *uploads) now() (n, limit int, dropped uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.all.Len(), u.limit, u.dropped
}

func (p *Proxy) uploadDropped() *refusal {
	_, limit, _ := p.uploads.now()
	return &refusal{
		outcome: upstream.BadRequest, status: statusRequestTimeout, close: true,
		detail: fmt.Sprintf("the bodies of %d requests were arriving, and this one for the longest time; see server.max_uploads and server.max_buffered_bytes", limit),
	}
}
