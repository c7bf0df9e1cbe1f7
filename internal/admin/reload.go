package admin

import (
	"net/http"
)

// Reload reads the configuration again and applies it. It returns the status of the
// response and a value for its JSON body: what changed, or the errors.
type Reload func() (status int, report any)

// reload refuses a body: a client that sends a configuration must not think that adbuffer
// used it. The file of --config is read.
func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		text(w, http.StatusBadRequest, "send no body: the file of --config is read again, on the machine of the process")
		return
	}
	status, report := s.opts.Reload()
	writeStatusJSON(w, status, report)
}
