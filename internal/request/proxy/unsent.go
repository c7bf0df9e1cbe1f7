package proxy

import (
	"sync"

	"adbuffer/internal/client/http1"
)

// unsents holds the HTTP/2 connections on which frames wait to be sent because the client does not read. Waiting
// frames count as unread responses, in addition to the responses that they carry, and they count against
// server.max_buffered_bytes. If unread responses hold too much memory, the longest-waiting connection is
// closed; see slowClients. An http1.Conn is a client's connection, also if the client speaks HTTP/2.
type unsents struct {
	mu  sync.Mutex // guards all
	all map[*http1.Conn]*unsentFrames
}

// unsentFrames counts the bytes of the waiting frames of one HTTP/2 connection. It implements source of slowClients;
// stopUpload does nothing, since waiting frames are not an upload.
//
// The lock of the HTTP/2 connection guards its fields.
type unsentFrames struct {
	conn   *http1.Conn
	unread slowClient
	bytes  int
}

func (*unsentFrames) stopUpload() {}

func (u *unsentFrames) dropUnread() { go u.conn.HTTP2().DropUnsent() }

// get returns the unsentFrames of c, which it adds if necessary.
func (s *unsents) get(c *http1.Conn) *unsentFrames {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.all[c]
	if u == nil {
		if s.all == nil {
			s.all = make(map[*http1.Conn]*unsentFrames)
		}
		u = &unsentFrames{conn: c}
		s.all[c] = u
	}
	return u
}

func (s *unsents) remove(u *unsentFrames) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, u.conn)
}

// Hold implements http1.Handler: it counts n bytes of TLS handshakes against server.max_buffered_bytes.
func (p *Proxy) Hold(n int) { p.budget.Hold(int64(n)) }

// Unsent implements http1.Handler: it adds n, which may be negative, to the bytes of the waiting frames of c.
func (p *Proxy) Unsent(c *http1.Conn, n int) {
	u := p.unsents.get(c)
	p.budget.Hold(int64(n))
	u.bytes += n
	p.unread.register(&u.unread, u, nil, 0)
	p.unread.addBytes(&u.unread, int64(n))
	if u.bytes == 0 {
		p.unread.unregister(&u.unread, false)
		p.unsents.remove(u)
	}
}
