package proxy

import (
	"sync"

	"adbuffer/internal/socket"
)

// watch watches clients' connections. Thus requests of clients that have disconnected are
// cancelled, and parked connections need no goroutine. The first connection starts it. If the
// process may open no more files, it cannot start. Then such requests end at their deadlines, and
// parked connections have goroutines.
type watch struct {
	once sync.Once
	set  *socket.Watch // nil if it has not started; its methods accept nil
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

// close stops the watch. No connection is accepted any more.
func (w *watch) close() {
	w.once.Do(func() {})
	w.set.Close() //nolint:errcheck // nothing depends on it any more
}
