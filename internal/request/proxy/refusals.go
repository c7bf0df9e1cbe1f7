package proxy

import (
	"fmt"

	"adbuffer/internal/client/http1"
	"adbuffer/internal/machine/overload"
	"adbuffer/internal/machine/rates"
	"adbuffer/internal/wire/exchange"
)

// refusal is the reason and the response of a refused request.
type refusal = http1.Refusal

func (p *Proxy) overloaded() *refusal {
	return &refusal{Outcome: exchange.Overloaded, Detail: fmt.Sprintf("%d of %d requests are in flight; see server.max_in_flight", p.inFlight.Now(), p.inFlight.Limit())}
}

func bufferFull(b *exchange.Budget) *refusal {
	return &refusal{Outcome: exchange.Overloaded, Detail: fmt.Sprintf("%d of %d bytes of bodies are held; see %s", b.Used(), b.Limit(), b.From())}
}

func (v *configVersion) bodyTooLarge() *refusal {
	return &refusal{Outcome: exchange.TooLarge, Detail: fmt.Sprintf("the body is over %d bytes; see server.max_body_bytes", v.opts.MaxBodyBytes), Close: true}
}

// bodyNotAllowed refuses a GET or HEAD with a body. An SSP that ignores such a body
// would take it for the next request on a connection that many clients share.
func bodyNotAllowed() *refusal {
	return http1.Malformed("a GET or HEAD must have no body")
}

func (p *Proxy) uploadDropped() *refusal {
	_, limit, _ := p.uploads.now()
	return http1.Late(fmt.Sprintf("the bodies of %d requests were arriving, and this one for the longest time; see server.max_uploads and server.max_buffered_bytes", limit))
}

// pauseJitter is the share by which pauses differ, so that connections that were refused together are not
// read together.
const pauseJitter = 0.5

// shed refuses a share of the requests while adbuffer is overloaded. It needs only the message head. Then
// the time for which a request has waited in its socket counts for its deadline: see setDeadline. Without
// that, requests would be forwarded whose responses are late, and their connections be closed: work that
// makes the next ones late too.
func (r *request) shed() *refusal {
	if r.search.Explaining {
		return nil
	}
	if r.opts.Overload.Overloaded() {
		age, _ := r.InputAge()
		r.Waited = max(r.Waited, age)
	}
	if r.Waited > 0 && r.Gone() {
		return &refusal{Outcome: exchange.ClientGone, Detail: fmt.Sprintf("adbuffer has too little CPU: it read the request %v after it came; see server.overload", r.Waited)}
	}
	f := r.opts.Overload.Refuse(r.route.Priority)
	if f == nil {
		return nil
	}
	return &refusal{Outcome: exchange.Overloaded, Detail: f.Detail, RetryAfter: overload.RetryAfter, Pause: rates.Jitter(f.Pause, pauseJitter)}
}
