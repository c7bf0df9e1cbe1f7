// Package http2server is a client's HTTP/2 connection: a server's half of RFC
// 9113. Frames, header blocks and settings are those of package http2codec.
//
// # A request's way
//
// The reader takes frames as they come. It gives a request's header to the Owner
// (Open), then each piece of its body (Request.Data). So a request can be refused
// before its body has come. Once END_STREAM has come, a worker calls Request.Serve,
// which may wait, and sends the response. A request whose stream ends before, by a
// violation or by RST_STREAM, is never served: RFC 9113, section 8.1.1.
//
// The reader looks at all frames of one read before it starts workers. A stream that
// is reset in the same read as its HEADERS costs no worker and reaches no SSP.
//
// # Goroutines
//
// Serve reads on its caller's goroutine. It returns while the connection is idle, so
// that an idle client needs none. Workers are kept for the next requests until the
// connection is idle. Workers write: the first one that has something to send lets
// all that are ready add theirs, and writes for all. The reader never writes to the
// socket while requests can come, so it never waits for a client that does not read.
//
// # Locks
//
// Conn.mu guards everything but what only the reader touches (Conn.in). It is held
// while frames are handled and the Owner is called, and never across I/O.
package http2server
