package reload

import (
	"errors"
	"net/http"

	"go.uber.org/zap"

	"adbuffer/internal/setup/config"
)

// The results of a reload. After refused and draining, the old configuration stays in force.
const (
	applied   = "applied"
	unchanged = "unchanged"
	refused   = "refused"
	draining  = "draining" // no configuration was read
)

// Report is the body of the response to POST /reload.
type Report struct {
	Result   string           `json:"result"`
	Hash     string           `json:"hash,omitempty"` // hash of the new configuration; empty if the old one stays in force
	Changes  []config.Change  `json:"changes"`
	Faults   config.Errors    `json:"faults"`
	Warnings []config.Warning `json:"warnings"` // about the configuration, and about the current load
	// Error says why the file could not be read or applied, if the reason is no error in the values of
	// the file. Those are in Faults.
	Error   string `json:"error,omitempty"`
	Traffic any    `json:"traffic,omitempty"` // the result of the trial on the sampled traffic; nil = not tried
}

// Err returns why no configuration was applied, or nil. The error is of type config.Errors if the file has
// errors.
func (r *Report) Err() error {
	switch {
	case r.Result == applied || r.Result == unchanged:
		return nil
	case len(r.Faults) > 0:
		return r.Faults
	}
	return errors.New(r.Error)
}

// failed returns the report of a reload that changed nothing because of err.
func failed(err error) Report {
	r := Report{Result: refused}
	switch {
	case errors.Is(err, ErrStopping):
		r.Result, r.Error = draining, err.Error()
	case !errors.As(err, &r.Faults):
		r.Error = err.Error()
	}
	return r
}

// maxLogged bounds the changes that one reload logs, since a change of ssp_defaults counts as a change of
// every SSP. It bounds the errors too, since a trial on the traffic may fail for every SSP and route.
const maxLogged = 100

func (r *Report) log(log *zap.Logger) {
	log.Info("configuration reloaded", zap.String("hash", r.Hash), zap.Int("changes", len(r.Changes)))
	for i, c := range r.Changes {
		if i == maxLogged {
			log.Info("further changes of the configuration are not logged", zap.Int("changes", len(r.Changes)-i))
			return
		}
		log.Info("configuration changed", zap.String("path", c.Path), zap.String("old", c.Old), zap.String("new", c.New), zap.String("effect", string(c.Effect)))
	}
}

// response returns the status and the body of the response. Empty lists become [] and not null in JSON.
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
