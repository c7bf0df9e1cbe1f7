package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
)

// maxDocument is larger than the limit on a configuration's size, so that the report can name that limit.
const maxDocument = 2 << 20 // bytes

// reload serves POST /reload. It accepts a body only for a dry run. A reload reads the file of --config, so
// a client that sends a configuration must not believe that adbuffer has applied it.
func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	dryRun, err := flagOf(r, "dry_run")
	traffic, trafficErr := flagOf(r, "traffic")
	err = cmp.Or(err, trafficErr)
	var status int
	var report any
	switch {
	case err != nil:
	case traffic && !dryRun:
		err = badRequest("traffic=1 needs dry_run=1")
	case dryRun:
		status, report, err = s.dryRun(r, traffic)
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

// flagOf returns the query's parameter of this name, which is 1 or 0; false without it.
func flagOf(r *http.Request, name string) (bool, error) {
	query := r.URL.Query()
	if !query.Has(name) {
		return false, nil
	}
	v, err := strconv.ParseBool(query.Get(name))
	if err != nil {
		return false, badRequest("%s=%.80q must be 1 or 0", name, query.Get(name))
	}
	return v, nil
}

func (s *Server) dryRun(r *http.Request, traffic bool) (status int, report any, err error) {
	document, err := readBody(r, maxDocument, fmt.Sprintf("a configuration must not be longer than %d bytes", maxDocument))
	switch {
	case err != nil:
		return 0, nil, err
	case len(document) == 0:
		return 0, nil, badRequest("send the configuration as the body: dry_run=1 does not read the file of --config")
	}
	status, report = s.opts.DryRun(r.Context(), document, traffic)
	return status, report, nil
}
