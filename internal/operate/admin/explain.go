package admin

import (
	"fmt"
	"net/http"
	"net/netip"
)

// explainMargin is how much longer than the largest forwarded request a message may be. Then the
// explanation itself says that a request is too large.
const explainMargin = 1 << 20

// explain takes the message in the body as it would arrive from a client, so the same code reads
// it.
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
