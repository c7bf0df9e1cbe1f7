package admin

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// Errors of Options.Capture.
var (
	ErrCaptureBusy = errors.New("another capture of this SSP is in progress")
	ErrCaptureOff  = errors.New("captures are off; see admin.capture")
)

const (
	maxCapture  = 100
	captureWait = 10 * time.Second
	maxWait     = time.Minute
)

func (s *Server) capture(r *http.Request) (any, error) {
	q := r.URL.Query()
	n, err := strconv.Atoi(cmp.Or(q.Get("n"), "1"))
	if err != nil || n < 1 || n > maxCapture {
		return nil, badRequest("n must be from 1 to %d", maxCapture)
	}
	wait, err := waitOf(r, captureWait)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	return s.opts.Capture(ctx, q.Get("ssp"), n)
}

// waitOf returns the parameter wait of the query, or byDefault.
func waitOf(r *http.Request, byDefault time.Duration) (time.Duration, error) {
	v := r.URL.Query().Get("wait")
	if v == "" {
		return byDefault, nil
	}
	wait, err := time.ParseDuration(v)
	if err != nil || wait <= 0 || wait > maxWait {
		return 0, badRequest("wait must be a duration up to %v, for example 10s", maxWait)
	}
	return wait, nil
}
