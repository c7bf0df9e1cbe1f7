// Package http2 is the multiplexed HTTP/2 connection: a client's half of RFC
// 9113 and RFC 7541, and nothing of a server's.
//
// Frames, header blocks and settings are those of package http2codec.
//
// # Goroutines
//
// Each connection has one reader, which New starts and which ends with the
// socket. There is no writer: a caller encodes its request into the shared
// buffer under Conn.mu, and if nobody is writing it becomes the writer; see
// Conn.flush. What might block is written by a goroutine made for it, so that
// no caller waits for a stuck peer, and neither does the reader.
//
// # Locks
//
// Conn.mu guards everything but what only the reader touches (Conn.in). It is
// never held across I/O or a call of the owner, and no other lock is taken
// under it.
package http2
