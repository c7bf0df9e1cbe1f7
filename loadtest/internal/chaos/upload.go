package chaos

import (
	"io"
	"sync"
	"time"
)

// upload is a body that the client sends in pieces with pauses. In HTTP/1 a piece becomes a chunk.
type upload struct {
	io.Reader
	piece int // the longest piece in bytes
	pause time.Duration

	mu          sync.Mutex
	first, last time.Time
}

func (u *upload) Read(b []byte) (int, error) {
	u.mu.Lock()
	if u.first.IsZero() {
		u.first = time.Now()
	}
	u.last = time.Now()
	u.mu.Unlock()
	time.Sleep(u.pause)
	return u.Reader.Read(b[:min(len(b), u.piece)])
}

func (u *upload) Close() error { return nil }

// took returns an upper bound on the time that the client took to send the body.
func (u *upload) took() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.last.Sub(u.first) + u.pause
}
