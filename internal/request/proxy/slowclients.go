package proxy

import (
	"container/list"
	"sync"

	"adbuffer/internal/wire/exchange"
)

// slowClients are requests whose body is still arriving (uploads), or responses of which clients have
// not read enough for the rest to be written (unread). They may hold half of
// server.max_buffered_bytes, and those of one SSP half of its share. Beyond that, and beyond a limit
// on their number, the ones that have waited for longest are dropped. So slow clients cannot exclude
// other clients, or take the memory that others need.
//
// A request whose body arrives with its message head, and a response that the socket takes at once,
// are never among them.
type slowClients struct {
	budget *exchange.Budget // of all messages; only its limit is used
	drop   func(source)     // ends one of them

	mu      sync.Mutex // guards the fields below, and the fields of each waiting
	limit   int        // of their number; 0 = none
	all     waitings
	shares  map[*exchange.Budget]*waitings
	dropped uint64
}

// source is the client's side of a request. Its methods must not block.
type source interface {
	// stopUpload makes each read of the body that would wait fail, and a read that is waiting.
	stopUpload()
	// dropUnread ends the response.
	dropUnread()
}

// waiting is the part of a request or response in slowClients.
type waiting struct {
	begun   bool // it was among them; only the code that reads or writes the message uses it
	dropped bool
	source  source
	share   *exchange.Budget // nil for a request, and for a response of several SSPs or of none
	bytes   int64            // before begin only the code that reads the message uses it
	place   *list.Element    // in all; nil while it is not among them
	ofShare *list.Element    // in the share's
}

// waitings are some that wait, the longest one in front.
type waitings struct {
	list  list.List // of *waiting
	bytes int64
}

func (s *slowClients) setLimit(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = n
}

// begin adds w, which holds n bytes more than grow has noted. ex is the exchange of a response, or
// nil. begin may be called again.
func (s *slowClients) begin(w *waiting, from source, ex *exchange.Exchange, n int) {
	if w.begun {
		return
	}
	w.begun, w.source = true, from
	s.mu.Lock()
	defer s.mu.Unlock()
	w.bytes += int64(n)
	w.place = s.all.add(w)
	if ex != nil && ex.Share != nil {
		w.share = ex.Share
		share := s.shareLocked(w.share)
		w.ofShare = share.add(w)
		s.shrinkLocked(share, w.share, 0)
	}
	s.shrinkLocked(&s.all, s.budget, s.limit)
}

func (s *slowClients) shareLocked(b *exchange.Budget) *waitings {
	share := s.shares[b]
	if share == nil {
		if s.shares == nil {
			s.shares = make(map[*exchange.Budget]*waitings)
		}
		share = new(waitings)
		s.shares[b] = share
	}
	return share
}

// grow notes that w, a request, holds n more bytes.
func (s *slowClients) grow(w *waiting, n int64) {
	if !w.begun {
		w.bytes += n
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.place != nil {
		w.bytes += n
		s.all.bytes += n
		s.shrinkLocked(&s.all, s.budget, s.limit)
	}
}

// shrinkLocked drops the oldest ones above half of the budget, or above limit. The last one may hold
// any bytes.
func (s *slowClients) shrinkLocked(some *waitings, budget *exchange.Budget, limit int) {
	for limit > 0 && some.list.Len() > limit || some.list.Len() > 1 && some.bytes > budget.Limit()/2 {
		oldest := some.list.Front().Value.(*waiting)
		s.removeLocked(oldest)
		oldest.dropped = true
		s.drop(oldest.source)
	}
}

func (s *slowClients) removeLocked(w *waiting) {
	s.all.remove(w, w.place)
	w.place = nil
	if w.share == nil {
		return
	}
	share := s.shares[w.share]
	if share.remove(w, w.ofShare); share.list.Len() == 0 {
		delete(s.shares, w.share)
	}
}

// end removes w, and reports whether it was dropped. One that was complete when it was dropped was
// not.
func (s *slowClients) end(w *waiting, complete bool) (dropped bool) {
	if !w.begun {
		w.bytes = 0 // of a body that needed no wait
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.place != nil {
		s.removeLocked(w)
	}
	dropped = w.dropped && !complete
	if dropped {
		s.dropped++
	}
	*w = waiting{}
	return dropped
}

// now returns the number of them, their limit, and how many were dropped.
func (s *slowClients) now() (n, limit int, dropped uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.list.Len(), s.limit, s.dropped
}

func (ws *waitings) add(w *waiting) *list.Element {
	ws.bytes += w.bytes
	return ws.list.PushBack(w)
}

func (ws *waitings) remove(w *waiting, place *list.Element) {
	ws.list.Remove(place)
	ws.bytes -= w.bytes
}
