// Package proxy handles clients' requests. For each request it checks the head, finds the route, reads the
// body, sets the deadline, forwards the request, makes the response, and reports how the request ended.
//
// Package client/http1 owns the clients' connections, and package client/http2 speaks HTTP/2 on them. In this package, type
// http1Request handles a request over HTTP/1, and type stream a request over HTTP/2. Both run the same steps,
// which are methods of Proxy and request.
package proxy
