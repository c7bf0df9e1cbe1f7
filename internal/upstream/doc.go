// Package upstream is what pools and connections agree on: typed errors, the
// place, the exchange.
//
// A connection ([Conn]) offers places: HTTP/1.1 one, pipelined HTTP/1.1 its
// depth, HTTP/2 its streams. A pool lends a place to one request at a time, as
// an [Exchange], and learns through [Owner] when the place is free again. The
// pool knows no protocol and the connections know no pool.
package upstream
