package proxy

import (
	"container/list"
	"sync"

	"adbuffer/internal/upstream"
)

// unread are the responses of which clients have not read enough for the rest to be written. They
// may hold half of server.max_buffered_bytes, and those of one SSP half of its share. Beyond that,
// the ones that have waited for longest are dropped. So clients that do not read cannot take the
// memory that the responses to other clients need.
//
// A response that the socket takes at once is never among them.
type unread struct {
	budget *upstream.Budget // of all messages; only its limit is used

	mu      sync.Mutex // guards the fields below, and the fields of each waiting
	all     waitings
	shares  map[*upstream.Budget]*waitings
	dropped uint64
}

// unreadCost is about what an unread response holds beside its header and body, in bytes.
const unreadCost = 4 << 10

// waitings are responses that wait, the longest one in front.
type waitings struct {
	list  list.List // of *waiting
	bytes int64
}

// waiting is a response's part in unread.
type waiting struct {
	begun   bool // it was in unread; only the code that writes the response uses it
	source  reader
	share   *upstream.Budget // nil for a response of several SSPs, or of none
	bytes   int64
	place   *list.Element // in all; nil while the response is not among them
	ofShare *list.Element // in the share's
}

// reader is the client's side of a response that waits. dropUnread ends the response, and must not
// block.
type reader interface{ dropUnread() }

// begin adds a response whose header and body hold n bytes. ex is nil for a response that is
// adbuffer's own. begin may be called again.
func (u *unread) begin(w *waiting, source reader, ex *upstream.Exchange, n int) {
	if w.begun {
		return
	}
	w.begun = true
	u.mu.Lock()
	defer u.mu.Unlock()
	w.source, w.bytes = source, int64(unreadCost+n)
	if ex != nil {
		w.share = ex.Share
	}
	w.place = u.all.list.PushBack(w)
	u.all.bytes += w.bytes
	if w.share != nil {
		s := u.shareLocked(w.share)
		w.ofShare = s.list.PushBack(w)
		s.bytes += w.bytes
		u.shrinkLocked(s, w.share.Limit()/2, w)
	}
	u.shrinkLocked(&u.all, u.budget.Limit()/2, w)
}

func (u *unread) shareLocked(b *upstream.Budget) *waitings {
	s := u.shares[b]
	if s == nil {
		if u.shares == nil {
			u.shares = make(map[*upstream.Budget]*waitings)
		}
		s = new(waitings)
		u.shares[b] = s
	}
	return s
}

// shrinkLocked drops responses until the others hold at most limit bytes. It keeps the newest.
func (u *unread) shrinkLocked(all *waitings, limit int64, newest *waiting) {
	for all.bytes > limit {
		longest := all.list.Front().Value.(*waiting)
		if longest == newest {
			return
		}
		source := longest.source
		u.removeLocked(longest)
		u.dropped++
		source.dropUnread()
	}
}

// end removes w, if it is among them.
func (u *unread) end(w *waiting) {
	if !w.begun {
		return
	}
	w.begun = false
	u.mu.Lock()
	defer u.mu.Unlock()
	if w.place != nil {
		u.removeLocked(w)
	}
}

func (u *unread) removeLocked(w *waiting) {
	u.all.list.Remove(w.place)
	u.all.bytes -= w.bytes
	if w.share != nil {
		s := u.shares[w.share]
		s.list.Remove(w.ofShare)
		if s.bytes -= w.bytes; s.list.Len() == 0 {
			delete(u.shares, w.share)
		}
	}
	w.source, w.share, w.bytes, w.place, w.ofShare = nil, nil, 0, nil, nil
}

func (u *unread) countDropped() uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.dropped
}
