package http1

import (
	"sync"

	"adbuffer/internal/wire/socket"
)

// watch watches clients' connections. With it, the request of a client that has disconnected is cancelled, and a
// parked connection needs no goroutine. The first connection starts it. If it cannot start, because no file
// descriptor is free, requests of disconnected clients end at their deadlines, and each parked connection has a
// goroutine.
type watch struct {
	once sync.Once
	set  *socket.Watch // nil if it has not started; its methods accept nil
}

func (w *watch) add(c *Conn) {
	if !c.socket.IsKernelSocket() {
		return
	}
	w.once.Do(func() {
		if set, err := socket.NewWatch(); err == nil {
			w.set = set
		}
	})
	w.set.Add(c.socket, c)
}

// close stops the watch. The caller must have stopped accepting connections.
func (w *watch) close() {
	w.once.Do(func() {})
	w.set.Close()
}
