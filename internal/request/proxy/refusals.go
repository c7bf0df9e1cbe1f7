package proxy

import (
	"fmt"
	"time"

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

// bodyNotAllowed refuses a GET or HEAD with a body. An SSP that does not expect a body would read it as the
// next request, on a connection that many clients share.
func bodyNotAllowed() *refusal {
	return http1.Malformed("a GET or HEAD must have no body")
}

func (p *Proxy) uploadDropped() *refusal {
	_, limit, _ := p.uploads.counts()
	return http1.Late(fmt.Sprintf("more than %d bodies were arriving, or they held half of server.max_buffered_bytes, and this body had been arriving for the longest time; see server.max_uploads and server.max_buffered_bytes", limit))
}

// pauseJitter is the share by which pauses are varied, so that connections whose requests were refused
// together are not all read again at the same moment.
const pauseJitter = 0.5

// shed refuses a share of the requests while adbuffer is overloaded. It needs only the message head. age is
// how long the request waited to be read, as far as adbuffer knows; while adbuffer is overloaded, that includes
// the time in the socket. setDeadline subtracts age from the request's time. Otherwise adbuffer would forward
// requests whose responses come too late for the client, and that useless work would make the next requests
// late, too.
func (r *request) shed() (age time.Duration, f *refusal) {
	age = r.Waited
	if r.search.Explaining {
		return age, nil
	}
	if r.opts.Overload.Overloaded() {
		inSocket, _ := r.InputAge()
		age = max(age, inSocket)
	}
	if age > 0 && r.Gone() {
		return age, &refusal{Outcome: exchange.ClientGone, Detail: fmt.Sprintf("adbuffer has too little CPU: it read the request %v after it came; see server.overload", age)}
	}
	refused := r.opts.Overload.Refuse(r.route.Priority)
	if refused == nil {
		return age, nil
	}
	return age, &refusal{Outcome: exchange.Overloaded, Detail: refused.Detail, RetryAfter: overload.RetryAfter, Pause: rates.Jitter(refused.Pause, pauseJitter)}
}
