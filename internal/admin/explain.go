package admin

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
)

// Explain returns what would happen to message, one request of HTTP/1.1 from a client at peer, as a
// value for JSON. Nothing of it is sent.
type Explain func(message []byte, peer netip.Addr) any

// maxExplained is how long a message to be explained may be: a head and a body of the default limits.
const maxExplained = 1 << 20

// explain takes the request as it would come on the wire, so that it is read by the same code.
func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	peer := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if v := r.URL.Query().Get("client"); v != "" {
		var err error
		if peer, err = netip.ParseAddr(v); err != nil {
			text(w, http.StatusBadRequest, "client must be an IP address")
			return
		}
	}
	message, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxExplained))
	if err != nil {
		text(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body must be one HTTP/1.1 request of at most %d bytes", maxExplained))
		return
	}
	writeJSON(w, s.opts.Explain(message, peer))
}
