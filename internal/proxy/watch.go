package proxy

import (
	"sync"

	"adbuffer/internal/socket"
)

// watch watches clients' connections: so that requests of clients that have left are
// cancelled, and that parked connections need no goroutine. The first connection starts
// it. Where it cannot start, since the process may open no further file, such requests end
// at their deadlines, and parked connections have goroutines.
type watch struct {
	once sync.Once
	set  *socket.Watch // nil, which has all methods, where it has not started
}

func (w *watch) add(c *clientConn) {
	if !c.IsKernels() {
		return
	}
	w.once.Do(func() {
		if set, err := socket.NewWatch(); err == nil {
			w.set = set
		}
	})
	w.set.Add(c.Conn, c)
}

// close ends it. No connection is accepted any more.
func (w *watch) close() {
	w.once.Do(func() {})
	w.set.Close() //nolint:errcheck // nothing depends on it any more
}
