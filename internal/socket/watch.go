package socket

// Watcher owns a connection in a Watch.
type Watcher interface {
	// Notify is called on the goroutine of the Watch, and must not block. hungUp says that the peer
	// has closed its connection or the sending half of it, or that the connection has failed. It
	// may be an event from before the last call of AwaitHangUp or AwaitArrival.
	Notify(hungUp bool)
}
