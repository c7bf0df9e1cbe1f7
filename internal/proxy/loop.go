package proxy

import (
	"fmt"

	"adbuffer/internal/upstream"
)

// maxAdbuffers is how many adbuffers a request may have passed before this one.
// A sidecar and an edge service are two.
const maxAdbuffers = 8

// checkLoop refuses a request that has passed this process before. It also refuses one that has
// passed so many adbuffers that a loop is likely.
func (r *request) checkLoop() *refusal {
	n, itself := r.fields.Adbuffers(r.opts.Via)
	switch {
	case itself:
		return &refusal{outcome: upstream.Loop, detail: fmt.Sprintf("Via names this process, %s: an endpoint in ssps[].endpoints leads back to it", r.opts.Via)}
	case n > maxAdbuffers:
		return &refusal{outcome: upstream.Loop, detail: fmt.Sprintf("Via names %d adbuffers, and %d are allowed: an endpoint in ssps[].endpoints most likely leads back to one of them", n, maxAdbuffers)}
	}
	return nil
}
