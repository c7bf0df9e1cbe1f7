// Package proxy handles clients' requests. For each request it checks the head, finds the route, reads the
// body, sets the deadline, forwards the request, makes the response, and reports how the request ended.
//
// Clients' connections belong to package client/http1. Type http1Request handles a request over HTTP/1,
// and type stream a request over HTTP/2. Both run the same steps, which are methods of Proxy and request.
package proxy
