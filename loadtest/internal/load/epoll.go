// Package epoll waits for many sockets on one thread.
//
// The load generator must cost less than what it measures. One thread that
// reads and writes whichever sockets are ready, without a goroutine for each,
// comes to a few microseconds a request, nearly all of them the kernel's.
package load

// event is a socket that is ready.
type event struct {
	Key      int32 // as it was added
	Readable bool  // there are bytes, or the end of the stream, or an error
	Writable bool
	HungUp   bool // the peer closed, or the connection failed: read until the end
}
