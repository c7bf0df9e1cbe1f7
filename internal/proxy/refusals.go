package proxy

import (
	"fmt"

	"adbuffer/internal/http1server"
	"adbuffer/internal/upstream"
)

// refusal is the reason and the response of a refused request.
type refusal = http1server.Refusal

func (p *Proxy) overloaded() *refusal {
	return &refusal{Outcome: upstream.Overloaded, Detail: fmt.Sprintf("%d of %d requests are in flight; see server.max_in_flight", p.inFlight.Now(), p.inFlight.Limit())}
}

func (p *Proxy) bufferFull() *refusal {
	return &refusal{Outcome: upstream.Overloaded, Detail: fmt.Sprintf("%d of %d bytes of bodies are held; see %s", p.budget.Used(), p.budget.Limit(), p.budget.From())}
}

func (v *configVersion) bodyTooLarge() *refusal {
	return &refusal{Outcome: upstream.TooLarge, Detail: fmt.Sprintf("the body is over %d bytes; see server.max_body_bytes", v.opts.MaxBodyBytes), Close: true}
}

// bodyNotAllowed refuses a GET or HEAD with a body. An SSP that ignores such a body
// would take it for the next request on a connection that many clients share.
func bodyNotAllowed() *refusal {
	return http1server.Malformed("a GET or HEAD must have no body")
}

func (p *Proxy) uploadDropped() *refusal {
	_, limit, _ := p.uploads.now()
	return http1server.Late(fmt.Sprintf("the bodies of %d requests were arriving, and this one for the longest time; see server.max_uploads and server.max_buffered_bytes", limit))
}
