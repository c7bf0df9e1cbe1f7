package proxy

import (
	"container/list"
	"fmt"
	"sync"

	"github.com/valyala/fasthttp"

	"adbuffer/internal/upstream"
)

// uploads are the requests whose body is still arriving: server.max_uploads. A
// request whose body comes with its head is never among them.
//
// Where there is one more than the limit, the upload that has been arriving for
// longest is dropped, so that clients that never finish theirs cannot keep those
// of others out.
type uploads struct {
	mu      sync.Mutex // guards the fields below, and those of each upload
	limit   int
	all     list.List // of *upload, the one that has been arriving for longest in front
	dropped uint64
}

// upload is a request's part in uploads.
type upload struct {
	begun   bool // of its own goroutine: it was in uploads
	place   *list.Element
	source  stopper
	stopped bool // to make room for another
}

// stopper is where a body comes from. After stop, a read of it that would wait
// fails, and one that waits already. stop must not block.
type stopper interface{ stop() }

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
	if u.all.Len() > u.limit {
		oldest := u.all.Remove(u.all.Front()).(*upload)
		oldest.place, oldest.stopped = nil, true
		oldest.source.stop()
	}
}

// end takes up out, and reports whether it is dropped: a body that was complete when
// it was stopped is not.
func (u *uploads) end(up *upload, complete bool) (dropped bool) {
	if !up.begun {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if up.place != nil {
		u.all.Remove(up.place)
	}
	if dropped = up.stopped && !complete; dropped {
		u.dropped++
	}
	*up = upload{}
	return dropped
}

// now returns how many uploads there are, their limit, and how many were dropped.
func (u *uploads) now() (n, limit int, dropped uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.all.Len(), u.limit, u.dropped
}

func (p *Proxy) uploadDropped() *fault {
	_, limit, _ := p.uploads.now()
	return &fault{
		outcome: upstream.BadRequest, status: fasthttp.StatusRequestTimeout, close: true,
		detail: fmt.Sprintf("the bodies of %d requests were arriving, and this one for longest; see server.max_uploads", limit),
	}
}
