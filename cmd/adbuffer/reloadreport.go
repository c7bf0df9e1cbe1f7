package main

import (
	"errors"
	"net/http"

	"adbuffer/internal/app"
	"adbuffer/internal/config"
	"adbuffer/internal/reload"
)

// What came of a reload.
const (
	reloadApplied   = "applied"
	reloadUnchanged = "unchanged"
	reloadRefused   = "refused"  // the old configuration stays in force
	reloadDraining  = "draining" // nothing was read
)

// reloadReport is what POST /reload answers.
type reloadReport struct {
	Result   string           `json:"result"`
	Hash     string           `json:"hash,omitempty"` // of the configuration now in force; empty if that is still the old one
	Changes  []reload.Change  `json:"changes"`
	Faults   config.Faults    `json:"faults"`
	Warnings []config.Warning `json:"warnings"`
	// Error says why the file could not be read or brought into force, where no
	// value of it is to blame.
	Error string `json:"error,omitempty"`
}

func (r *reloadReport) done(res *app.Reloaded, warnings []config.Warning) {
	r.Result, r.Hash, r.Changes, r.Warnings = reloadApplied, res.Hash, res.Changes, warnings
	if len(res.Changes) == 0 {
		r.Result = reloadUnchanged
	}
}

func (r *reloadReport) refused(err error) {
	r.Result = reloadRefused
	if !errors.As(err, &r.Faults) {
		r.Error = err.Error()
	}
}

func (r *reloadReport) stopping() { r.Result, r.Error = reloadDraining, app.ErrStopping.Error() }

// answer is the report over HTTP, without JSON's null for a list that is empty.
func (r reloadReport) answer() (status int, body any) {
	if r.Changes == nil {
		r.Changes = []reload.Change{}
	}
	if r.Faults == nil {
		r.Faults = config.Faults{}
	}
	if r.Warnings == nil {
		r.Warnings = []config.Warning{}
	}
	switch r.Result {
	case reloadRefused:
		return http.StatusUnprocessableEntity, r
	case reloadDraining:
		return http.StatusServiceUnavailable, r
	default:
		return http.StatusOK, r
	}
}
