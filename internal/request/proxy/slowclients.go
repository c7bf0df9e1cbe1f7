package proxy

import (
	"container/list"
	"sync"

	"adbuffer/internal/wire/exchange"
)

// slowClients holds the clients that keep adbuffer waiting: either those whose request body is still
// arriving (uploads), or those that have not read enough of their response for the rest to be written
// (unread). Together they may hold half of server.max_buffered_bytes, and those of one SSP half of the SSP's
// budget. Beyond that, and beyond a limit on their number, the longest-waiting clients are dropped. So slow
// clients can neither exclude other clients nor deplete the memory.
//
// A request whose body arrives with its message head, and a response that the socket accepts at once, are
// never registered.
type slowClients struct {
	budget *exchange.Budget // the budget of all messages; slowClients uses only its limit
	drop   func(source)     // ends the upload or the response of a dropped client

	mu      sync.Mutex // guards the fields below, and the fields of each slowClient
	limit   int        // how many clients may be registered; 0 = no limit
	all     waitList
	bySSP   map[*exchange.Budget]*waitList // the clients in all whose response belongs to an SSP, by the SSP's budget
	dropped uint64
}

// source is the client's side of a request. Its methods must not block.
type source interface {
	// stopUpload makes every blocking read of the body fail, including a read in progress. Over HTTP/2
	// it refuses the request.
	stopUpload()
	// dropUnread ends the response, or the HTTP/2 connection whose frames the client does not read.
	dropUnread()
}

// slowClient is what may be registered in slowClients: a request, a response, or the unsent frames of an HTTP/2
// connection.
type slowClient struct {
	registered   bool // since register; only the goroutine that reads or writes the message uses it
	dropped      bool
	source       source
	share        *exchange.Budget // budget of the response's SSP; nil for a request, and for a response of several SSPs or of adbuffer
	bytes        int64            // before register, only the goroutine that reads the message uses it
	element      *list.Element    // in slowClients.all; nil if the client was dropped, or is not registered
	shareElement *list.Element    // in the list of share
}

// waitList holds waiting clients, longest-waiting first.
type waitList struct {
	list  list.List // of *slowClient
	bytes int64     // held by all clients in the list
}

func (s *slowClients) setLimit(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = n
}

// register adds w, which holds n bytes in addition to those that addBytes has counted. ex is the exchange of a
// response, or nil. A second call has no effect.
func (s *slowClients) register(w *slowClient, from source, ex *exchange.Exchange, n int) {
	if w.registered {
		return
	}
	w.registered, w.source = true, from
	s.mu.Lock()
	defer s.mu.Unlock()
	w.bytes += int64(n)
	w.element = s.all.add(w)
	if ex != nil && ex.Share != nil {
		w.share = ex.Share
		share := s.listOfLocked(w.share)
		w.shareElement = share.add(w)
		s.dropExcessLocked(share, w.share, 0)
	}
	s.dropExcessLocked(&s.all, s.budget, s.limit)
}

func (s *slowClients) listOfLocked(b *exchange.Budget) *waitList {
	share := s.bySSP[b]
	if share == nil {
		if s.bySSP == nil {
			s.bySSP = make(map[*exchange.Budget]*waitList)
		}
		share = new(waitList)
		s.bySSP[b] = share
	}
	return share
}

// addBytes counts n more bytes that w holds; n may be negative. w must not be in the list of a share, whose bytes
// addBytes does not change.
func (s *slowClients) addBytes(w *slowClient, n int64) {
	if !w.registered {
		w.bytes += n
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.element != nil {
		w.bytes += n
		s.all.bytes += n
		s.dropExcessLocked(&s.all, s.budget, s.limit)
	}
}

// dropExcessLocked drops the longest-waiting clients of a list while the list holds more than half of the
// budget, or more clients than limit. It never drops the only client of a list because of its bytes.
func (s *slowClients) dropExcessLocked(l *waitList, budget *exchange.Budget, limit int) {
	for limit > 0 && l.list.Len() > limit || l.list.Len() > 1 && l.bytes > budget.Limit()/2 {
		oldest := l.list.Front().Value.(*slowClient)
		s.removeLocked(oldest)
		oldest.dropped = true
		s.drop(oldest.source)
	}
}

func (s *slowClients) removeLocked(w *slowClient) {
	s.all.remove(w, w.element)
	w.element = nil
	if w.share == nil {
		return
	}
	share := s.bySSP[w.share]
	if share.remove(w, w.shareElement); share.list.Len() == 0 {
		delete(s.bySSP, w.share)
	}
}

// unregister removes w, and reports whether w was dropped. complete says that the message was complete, so
// that a drop came too late and does not count.
func (s *slowClients) unregister(w *slowClient, complete bool) (dropped bool) {
	if !w.registered {
		w.bytes = 0 // counted for a body that arrived without a wait
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.element != nil {
		s.removeLocked(w)
	}
	dropped = w.dropped && !complete
	if dropped {
		s.dropped++
	}
	*w = slowClient{}
	return dropped
}

// counts returns how many clients are registered, their limit, and how many have been dropped.
func (s *slowClients) counts() (n, limit int, dropped uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.list.Len(), s.limit, s.dropped
}

func (l *waitList) add(w *slowClient) *list.Element {
	l.bytes += w.bytes
	return l.list.PushBack(w)
}

func (l *waitList) remove(w *slowClient, element *list.Element) {
	l.list.Remove(element)
	l.bytes -= w.bytes
}
