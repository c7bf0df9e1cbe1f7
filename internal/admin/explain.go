package admin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
)

// Explain returns, as a value for JSON, how adbuffer would handle message: one HTTP/1.1 request
// from a client at peer. No SSP gets the request.
type Explain func(message []byte, peer netip.Addr) any

// explainMargin is how much longer than the largest forwarded request a message may be. Then the
// explanation itself says that a request is too large.
const explainMargin = 1 << 20

// explain takes the message in the body as it would arrive from a client, so the same code reads
// it.
func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	peer := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if v := r.URL.Query().Get("client"); v != "" {
		var err error
		peer, err = netip.ParseAddr(v)
		if err != nil {
			text(w, http.StatusBadRequest, fmt.Sprintf("client=%.80q is no IP address", v))
			return
		}
	}
	limit := s.opts.MaxRequestBytes() + explainMargin
	message, ok := readBody(w, r, limit, fmt.Sprintf("the request to be explained is longer than the limit of %d bytes; \"adbuffer explain --config FILE\" has none", limit))
	if ok {
		writeJSON(w, s.opts.Explain(message, peer))
	}
}

// readBody returns the body, or responds with an error: tooLarge for a body over limit.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, tooLarge string) (body []byte, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if e := new(http.MaxBytesError); errors.As(err, &e) {
		text(w, http.StatusRequestEntityTooLarge, tooLarge)
	} else if err != nil {
		text(w, http.StatusBadRequest, "the body could not be read: "+err.Error())
	}
	return body, err == nil
}
