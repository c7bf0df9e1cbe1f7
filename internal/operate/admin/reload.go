package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"

	"adbuffer/internal/setup/reload"
)

// maxDocument is larger than the limit on a configuration's size, so that the report can name that limit.
const maxDocument = 2 << 20 // bytes

// reload serves POST /reload. It accepts a body only for a dry run. A reload reads the file of --config, so
// a client that sends a configuration must not believe that adbuffer has applied it.
func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	dryRun, err := flagOf(r, "dry_run")
	t, trialErr := trialOf(r)
	err = cmp.Or(err, trialErr)
	var status int
	var report any
	switch {
	case err != nil:
	case dryRun && t.MaxChange != nil:
		err = badRequest("max_change is for a reload, not for a dry run")
	case dryRun:
		status, report, err = s.dryRun(r, t.Traffic)
	case s.opts.Reload == nil:
		err = &refusal{http.StatusNotFound, "this adbuffer has no configuration file to read again"}
	case r.ContentLength != 0:
		err = badRequest("send no body: the file of --config is read again, on the machine of the process; dry_run=1 says what a configuration would change")
	default:
		status, report = s.opts.Reload(r.Context(), t)
	}
	if err != nil {
		fail(w, err)
		return
	}
	writeJSON(w, status, report)
}

// trialOf returns the trial that the query asks for.
func trialOf(r *http.Request) (t reload.Trial, err error) {
	t.Traffic, err = flagOf(r, "traffic")
	if query := r.URL.Query(); err == nil && query.Has("max_change") {
		share, parseErr := strconv.ParseFloat(query.Get("max_change"), 64)
		if parseErr != nil || !(share >= 0) || !t.Traffic {
			return t, badRequest("max_change=%.80q must be a share such as 0.3, or inf, beside traffic=1", query.Get("max_change"))
		}
		t.MaxChange = &share
	}
	return t, err
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
