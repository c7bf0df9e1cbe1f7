//go:build !linux

package socket

// Watch reports nothing on this system: requests of clients that have disconnected end at their
// deadlines.
type Watch struct{}

// NewWatch returns nil; the methods accept nil.
func NewWatch() (*Watch, error) { return nil, nil }

// Add does nothing.
func (*Watch) Add(*Conn, Watcher) {}

// AwaitHangUp does nothing.
func (*Watch) AwaitHangUp(*Conn, Watcher) {}

// AwaitArrival returns false.
func (*Watch) AwaitArrival(*Conn, Watcher) bool { return false }

// Remove does nothing.
func (*Watch) Remove(*Conn, Watcher) {}

// Close does nothing.
func (*Watch) Close() error { return nil }
