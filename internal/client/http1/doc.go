// Package http1 is the clients' side of sockets: it accepts connections, reads the PROXY header,
// does the TLS handshake, reads requests over HTTP/1 and writes their responses, parks idle
// connections, and makes room at max_connections. A connection over HTTP/2 is handed to package
// http2. A Handler makes the responses.
//
// # A request's way
//
// Conn.readHead finds the end of the message head and gives fasthttp a constant head. fasthttp calls
// Server.handle, which calls Handler.Handle. The Handler asks for the head (Conn.Head) and the body
// (Conn.Body), and returns a Response. Its memory stays the Handler's until Request.Release, when the
// response has been written.
//
// # How adbuffer uses fasthttp's server
//
// Requests over HTTP/1 run on fasthttp's server. It gives each connection a goroutine and pooled
// buffers, calls the handler for each request, and writes responses. adbuffer does everything else.
// fasthttp sees it through one net.Conn, Conn. This needs five tricks. Each is named here
// with the hook in fasthttp that would remove it.
//
// A constant message head (head.go). adbuffer has one parser for each message, which is its own. So
// Conn.Read returns a constant head for each request: GET or HEAD, of HTTP/1.1 or 1.0, which
// is all that fasthttp needs for its response. The client's head is in the same buffer, behind 64
// bytes of room for the constant one, and stays there until the next Read. fasthttp never sees a
// body, an Expect field or a malformed request: the handler reads the body from the connection, and
// refuses what is malformed. The handler obeys the client's Connection field with
// RequestCtx.SetConnectionClose. A hook that reads the head of the next request in fasthttp's place
// would remove the constant head.
//
// The handshake hook (greeting.go). fasthttp calls the method Handshake of a connection that has
// one, on the connection's goroutine. There, adbuffer reads the PROXY header, which may have to
// wait for the client, and does the TLS handshake. fasthttp then asks ConnectionState for the
// protocol, and gives connections of HTTP/2 to NextProto's function. fasthttp calls Handshake again
// when a parked connection resumes, so only the first call does anything. A hook that runs once for
// each connection would remove that rule.
//
// Parking (parking.go). fasthttp holds 20 KB for each connection that it serves. If a Read has
// waited 200 ms for a request, it returns io.EOF, as if the client had closed. fasthttp frees its
// buffers and calls Close, which parks the connection instead. Only a parkedConn (parked.go) is
// kept, and an epoll set waits for its bytes. When bytes arrive, ServeConn serves the connection
// again. fasthttp.Server.ReduceMemoryUsage frees the buffers too, but allocates for each request. A
// hook that asks for buffers only when a byte has arrived would remove the false end.
//
// Deadlines (deadlines.go). fasthttp's timeouts are not set. They cost three deadlines and three
// clock readings for each request. They also cannot begin read_timeout with the first byte.
// socket.Conn calls waitRead or waitWrite only if a Read or a Write must wait, and takes the
// deadline from there. A hook before a read that waits would suffice, but only a connection knows
// that it waits.
//
// Errors as the end of the stream (head.go). For any error but io.EOF, fasthttp writes its own
// response, also to clients that connect early and to probes of load balancers. So Read returns
// io.EOF for every error. A server option that writes no response if no byte of a request was read
// would remove this.
//
// Closing. fasthttp's Shutdown closes connections on which a request has arrived, so a drain does
// not use it: see Server.Drain. fasthttp's Close of a connection is Conn.Close, which may park
// the connection, or linger until the client has read its responses (linger.go).
package http1
