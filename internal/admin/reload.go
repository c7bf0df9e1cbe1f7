package admin

import (
	"encoding/json"
	"net/http"
)

// Reload reads the configuration again and brings it into force. It returns the
// status to answer with and what the body shows as JSON: what changed, or what
// is wrong.
type Reload func() (status int, answer any)

// reload takes no body: the file that the process was started with is read, and
// whoever sends another must not think that it was used.
func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		text(w, http.StatusBadRequest, "send no body: the file of --config is read again, on the machine of the process")
		return
	}
	status, answer := s.opts.Reload()
	b, err := json.MarshalIndent(answer, "", " ")
	if err != nil {
		text(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(b, '\n')) //nolint:errcheck // the client has gone
}
