// Package http2 is a client's HTTP/2 connection: a server's half of RFC 9113. Package
// http2codec has the frames, header blocks and settings.
//
// # A request's way
//
// The reader handles frames in their order. It gives a request's header to the Owner (Open), then each piece of its
// body (Request.Data). So the Owner can refuse a request before its body has arrived. After END_STREAM, a worker
// calls Request.Serve, which may wait, and sends the response. A request whose stream is ended earlier, by a
// violation or by RST_STREAM, is never served: RFC 9113, section 8.1.1.
//
// The reader handles all frames of one read before it starts workers. A stream that is reset in the
// same read as its HEADERS costs no worker and reaches no SSP.
//
// # Goroutines
//
// Serve reads on its caller's goroutine. It returns while the connection is idle, so an idle client needs no
// goroutine. Workers are kept for the next requests until the connection is idle. A new goroutine for each request
// would cost 9 µs of CPU in addition to the 26 to 29 µs of a request (BenchmarkForwardH2 on one core). Workers write:
// the first worker with bytes to send lets all ready workers add theirs, and writes for all. The reader never writes
// to the socket while requests can arrive, so it never waits for a client that does not read.
//
// # Locks
//
// Conn.mu guards everything but Conn.in, which only the reader uses. It is held while frames are
// handled and the Owner is called, and never across I/O that may wait.
package http2
