package chaos

import (
	"io"
	"sync"
	"time"
)

// upload is a request body that the client sends in pieces, with a pause before each piece. In a chunked HTTP/1 request a
// piece is a chunk.
type upload struct {
	io.Reader     // the whole body
	piece     int // the largest size of a piece in bytes
	pause     time.Duration

	mu          sync.Mutex
	first, last time.Time // when the first and the last Read began
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

// sendTime returns about how long the client needed to send the body: from the first Read until the pause of the last Read
// ended. It returns 0 if nothing was read.
func (u *upload) sendTime() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.first.IsZero() {
		return 0
	}
	return u.last.Sub(u.first) + u.pause
}
