// Package http2 is the multiplexed HTTP/2 connection to an SSP: the client's side of RFC 9113 and
// RFC 7541.
//
// Frames, header blocks and settings are those of package http2codec.
//
// # Goroutines
//
// Each connection has one reader, which New starts and which ends with the socket. There is no
// writer goroutine: a caller encodes its request into the shared buffer under Conn.mu. If no other
// goroutine is writing, it becomes the writer; see Conn.unlockAndWrite. Bodies that wait are appended
// by the goroutine that gets them a window or room in the buffer. A write that may block gets a
// goroutine of its own, so neither a caller nor the reader waits for a stuck peer.
//
// # Locks
//
// Conn.mu guards everything except Conn.in, which only the reader uses. It is never held across I/O
// or a call of the owner, and no other lock is taken under it.
package http2
