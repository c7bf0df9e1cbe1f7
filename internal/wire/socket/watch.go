package socket

// Watcher owns a connection in a Watch.
type Watcher interface {
	// Notify is called on the goroutine of the Watch, and must not block. hungUp says that the peer
	// has closed its connection or its sending half, or that the connection has failed. The event
	// may be older than the last call of AwaitHangUp or AwaitArrival.
	Notify(hungUp bool)
}
