package admin

import (
	"fmt"
	"net/http"
	"strconv"
)

// maxDocument is larger than the limit on a configuration's size, so that the report can name that limit.
const maxDocument = 2 << 20 // bytes

// reload serves POST /reload. It accepts a body only for a dry run. A reload reads the file of --config, so
// a client that sends a configuration must not believe that adbuffer has applied it.
func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	query, dryRun, err := r.URL.Query(), false, error(nil)
	if query.Has("dry_run") {
		dryRun, err = strconv.ParseBool(query.Get("dry_run"))
	}
	var status int
	var report any
	switch {
	case err != nil:
		err = badRequest("dry_run=%.80q must be 1 or 0", query.Get("dry_run"))
	case dryRun:
		status, report, err = s.dryRun(r)
	case s.opts.Reload == nil:
		err = &refusal{http.StatusNotFound, "this adbuffer has no configuration file to read again"}
	case r.ContentLength != 0:
		err = badRequest("send no body: the file of --config is read again, on the machine of the process; dry_run=1 says what a configuration would change")
	default:
		status, report = s.opts.Reload()
	}
	if err != nil {
		fail(w, err)
		return
	}
	writeJSON(w, status, report)
}

func (s *Server) dryRun(r *http.Request) (status int, report any, err error) {
	document, err := readBody(r, maxDocument, fmt.Sprintf("a configuration must not be longer than %d bytes", maxDocument))
	switch {
	case err != nil:
		return 0, nil, err
	case len(document) == 0:
		return 0, nil, badRequest("send the configuration as the body: dry_run=1 does not read the file of --config")
	}
	status, report = s.opts.DryRun(document)
	return status, report, nil
}
