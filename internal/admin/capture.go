package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Capture returns the next n exchanges with an SSP as a value for JSON, or as many as
// ended before ctx did.
type Capture func(ctx context.Context, ssp string, n int) (any, error)

// Errors of a Capture. An unknown SSP is an *UnknownError.
var (
	ErrCaptureBusy = errors.New("another capture of this SSP is in progress")
	ErrCaptureOff  = errors.New("captures are off; see admin.capture")
)

const (
	maxCapture  = 100
	captureWait = 10 * time.Second
	mostWait    = time.Minute
)

func (s *Server) capture(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	n := 1
	if v := q.Get("n"); v != "" {
		var err error
		n, err = strconv.Atoi(v)
		if err != nil || n < 1 || n > maxCapture {
			text(w, http.StatusBadRequest, fmt.Sprintf("n must be from 1 to %d", maxCapture))
			return
		}
	}
	wait, err := waitOf(r, captureWait)
	if err != nil {
		text(w, http.StatusBadRequest, err.Error())
		return
	}
	format := q.Get("format")
	if format != "" && format != "json" && format != "har" {
		text(w, http.StatusBadRequest, "format must be json or har")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	switch v, err := s.opts.Capture(ctx, q.Get("ssp"), n); {
	case errors.As(err, new(*UnknownError)), errors.Is(err, ErrCaptureOff):
		text(w, http.StatusNotFound, err.Error())
	case errors.Is(err, ErrCaptureBusy):
		text(w, http.StatusConflict, err.Error())
	case err != nil:
		text(w, http.StatusInternalServerError, err.Error())
	default:
		if h, ok := v.(interface{ HAR() any }); ok && format == "har" {
			v = h.HAR()
		}
		writeJSON(w, v)
	}
}

// waitOf returns the parameter wait of the query, or byDefault.
func waitOf(r *http.Request, byDefault time.Duration) (time.Duration, error) {
	v := r.URL.Query().Get("wait")
	if v == "" {
		return byDefault, nil
	}
	wait, err := time.ParseDuration(v)
	if err != nil || wait <= 0 || wait > mostWait {
		return 0, fmt.Errorf("wait must be a duration up to %v, for example 10s", mostWait)
	}
	return wait, nil
}
