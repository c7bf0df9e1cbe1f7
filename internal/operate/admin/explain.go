package admin

import (
	"fmt"
	"net/http"
	"net/netip"
)

// explainMargin is how much longer a message may be than the largest request that adbuffer forwards, so
// that the explanation can say that a request is too large.
const explainMargin = 1 << 20

// explain serves POST /explain. Its body is the request message as a client would send it, so that the same
// code reads it.
func (s *Server) explain(r *http.Request) (any, error) {
	peer := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if v := r.URL.Query().Get("client"); v != "" {
		var err error
		peer, err = netip.ParseAddr(v)
		if err != nil {
			return nil, badRequest("client=%.80q is no IP address", v)
		}
	}
	limit := s.opts.MaxRequestBytes() + explainMargin
	message, err := readBody(r, limit, fmt.Sprintf("the request to be explained is longer than the limit of %d bytes; \"adbuffer explain --config FILE\" has none", limit))
	if err != nil {
		return nil, err
	}
	return s.opts.Explain(message, peer), nil
}
