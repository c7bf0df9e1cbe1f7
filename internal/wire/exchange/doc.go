// Package exchange defines what pools and connections share: typed errors, outcomes and the
// exchange.
//
// A connection ([Conn]) offers places: HTTP/1.1 one, pipelined HTTP/1.1 its depth, HTTP/2 its
// streams. A request acquires a place from the pool for one [Exchange]. [Owner] notifies the pool
// when the place is free again. The pool knows no protocol, and the connections do not know the
// pool.
package exchange
