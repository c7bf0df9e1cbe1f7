// Package proxy handles clients' requests. For each it checks the head, finds the route, reads the
// body, sets the deadline, forwards the request, makes the response, and reports how it ended.
//
// Package client/http1 has the clients' connections. Its requests over HTTP/1 come to http1Request, and
// the streams of client/http2 to stream. Both use the same steps of Proxy and request.
package proxy
