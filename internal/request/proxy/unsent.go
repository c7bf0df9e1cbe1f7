package proxy

import (
	"sync"

	"adbuffer/internal/client/http1"
)

// unsents are the HTTP/2 connections whose clients do not read, with the frames that wait for them. The
// frames count as unread responses, beside the responses that they carry, and against
// server.max_buffered_bytes. The connection that has waited for longest is closed if all of them hold too
// much: see slowClients.
type unsents struct {
	mu  sync.Mutex // guards all
	all map[*http1.Conn]*unsent
}

// unsent is a source without an upload. The lock of its HTTP/2 connection guards its fields.
type unsent struct {
	conn    *http1.Conn
	waiting waiting
	bytes   int
}

func (*unsent) stopUpload() {}

func (u *unsent) dropUnread() { go u.conn.HTTP2().DropUnsent() }

// of returns what is unsent on c.
func (s *unsents) of(c *http1.Conn) *unsent {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.all[c]
	if u == nil {
		if s.all == nil {
			s.all = make(map[*http1.Conn]*unsent)
		}
		u = &unsent{conn: c}
		s.all[c] = u
	}
	return u
}

func (s *unsents) remove(u *unsent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, u.conn)
}

// Hold implements http1.Handler.
func (p *Proxy) Hold(n int) { p.budget.Hold(int64(n)) }

// Unsent implements http1.Handler.
func (p *Proxy) Unsent(c *http1.Conn, n int) {
	u := p.unsents.of(c)
	p.budget.Hold(int64(n))
	u.bytes += n
	p.unread.begin(&u.waiting, u, nil, 0)
	p.unread.grow(&u.waiting, int64(n))
	if u.bytes == 0 {
		p.unread.end(&u.waiting, false)
		p.unsents.remove(u)
	}
}
