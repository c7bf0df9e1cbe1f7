package ssp

import "sync/atomic"

// codingTrial finds out whether the SSP accepts requests with a content coding, by its responses to the first ones.
type codingTrial struct {
	accepted atomic.Bool // the SSP has accepted a request with the coding, which ends the trial
	refused  atomic.Int64
}

// refusals is how many requests an SSP must have refused without having accepted one, so that it does not accept the
// coding.
const refusals = 10

// observe judges the response to a request with the coding. An SSP that does not know the coding responds with 415 (RFC
// 9110, section 15.5.16), or with 400, since it cannot read the body.
func (t *codingTrial) observe(status int) {
	switch {
	case t.accepted.Load():
	case status == 400 || status == 415:
		t.refused.Add(1)
	case status/100 == 2:
		t.accepted.Store(true)
	}
}

// refusedCoding returns compress.coding if the SSP does not accept it, else "".
func (s *SSP) refusedCoding() Coding {
	if t := s.codings[s.opts.Compress.Coding]; t != nil && !t.accepted.Load() && t.refused.Load() >= refusals {
		return s.opts.Compress.Coding
	}
	return ""
}
