//go:build !linux

package socket

// Watch tells what peers do while no goroutine reads: nothing here, where requests of
// clients that have left end at their deadlines.
type Watch struct{}

// NewWatch returns nil, which has all methods.
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
