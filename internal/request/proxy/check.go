package proxy

import (
	"fmt"

	"adbuffer/internal/client/http1"
	"adbuffer/internal/wire/exchange"
)

// checkLine checks first the target and then the method.
func (r *request) checkLine(method, target []byte) *refusal {
	r.method, r.rawTarget = method, target
	if string(method) != "OPTIONS" || string(target) != "*" {
		if violation := r.fields.SetTarget(target); violation != "" {
			return http1.Malformed(violation)
		}
	}
	switch string(method) {
	case "GET":
		r.ssp.Method = exchange.GET
	case "HEAD":
		r.ssp.Method = exchange.HEAD
	case "POST":
		r.ssp.Method = exchange.POST
	case "CONNECT":
		return http1.Malformed("CONNECT is not served")
	default:
		return &refusal{Outcome: exchange.MethodNotAllowed, Allow: "GET, HEAD, POST", Detail: "GET, HEAD and POST are served"}
	}
	return nil
}

// checkStream checks method and target of a request over HTTP/2. The header fields are in r.fields. last
// says that no body follows.
func (r *request) checkStream(method, target []byte, last bool) *refusal {
	if string(method) != "CONNECT" && string(target) != "*" && (len(target) == 0 || target[0] != '/') {
		return http1.Malformed("the path does not begin with a slash")
	}
	if f := r.checkLine(method, target); f != nil {
		return f
	}
	// A body without a stated length may still turn out to be empty.
	if !last && r.ssp.Method != exchange.POST && r.fields.ContentLength() > 0 {
		return bodyNotAllowed()
	}
	return nil
}

// maxAdbuffers is how many adbuffers a request may have passed before this one.
// A sidecar and an edge service are two.
const maxAdbuffers = 8

// checkLoop refuses a request that has already passed this process, or so many adbuffers that a loop is
// likely.
func (r *request) checkLoop() *refusal {
	n, itself := r.fields.Adbuffers(r.opts.Via)
	switch {
	case itself:
		return &refusal{Outcome: exchange.Loop, Detail: fmt.Sprintf("Via names this process, %s: an endpoint in ssps[].endpoints leads back to it", r.opts.Via)}
	case n > maxAdbuffers:
		return &refusal{Outcome: exchange.Loop, Detail: fmt.Sprintf("Via names %d adbuffers, and %d are allowed: an endpoint in ssps[].endpoints most likely leads back to one of them", n, maxAdbuffers)}
	}
	return nil
}
