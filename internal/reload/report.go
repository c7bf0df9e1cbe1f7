package reload

import (
	"errors"
	"net/http"

	"adbuffer/internal/config"
)

// The results of a reload. After refused and draining the old configuration stays
// in force.
const (
	applied   = "applied"
	unchanged = "unchanged"
	refused   = "refused"
	draining  = "draining" // no configuration was read
)

// Report is the body of the response to POST /reload.
type Report struct {
	Result   string           `json:"result"`
	Hash     string           `json:"hash,omitempty"` // of the new configuration in force; empty if the old one is
	Changes  []config.Change  `json:"changes"`
	Faults   config.Errors    `json:"faults"`
	Warnings []config.Warning `json:"warnings"`
	// Error is the reason why the file could not be read or applied, if that is not an error of its
	// values.
	Error string `json:"error,omitempty"`
}

// Err returns why no configuration was applied, or nil. It is config.Errors if the file has errors.
func (r *Report) Err() error {
	switch {
	case r.Result == applied || r.Result == unchanged:
		return nil
	case len(r.Faults) > 0:
		return r.Faults
	}
	return errors.New(r.Error)
}

func (r *Report) done(res *Result, warnings []config.Warning) {
	r.Result, r.Hash, r.Changes, r.Warnings = applied, res.Hash, res.Changes, warnings
	if len(res.Changes) == 0 {
		r.Result = unchanged
	}
}

func (r *Report) refused(err error) {
	r.Result = refused
	if !errors.As(err, &r.Faults) {
		r.Error = err.Error()
	}
}

func (r *Report) stopping() { r.Result, r.Error = draining, ErrStopping.Error() }

// response is the report with [] in place of JSON's null for an empty list.
func (r Report) response() (status int, body any) {
	r.Changes = append([]config.Change{}, r.Changes...)
	r.Faults = append(config.Errors{}, r.Faults...)
	r.Warnings = append([]config.Warning{}, r.Warnings...)
	switch r.Result {
	case refused:
		return http.StatusUnprocessableEntity, r
	case draining:
		return http.StatusServiceUnavailable, r
	default:
		return http.StatusOK, r
	}
}
