package admin

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// ErrTraceBusy is the error of Options.Trace while another trace is recorded.
var ErrTraceBusy = errors.New("another execution trace is being recorded")

const traceWait = time.Second

func (s *Server) trace(w http.ResponseWriter, r *http.Request) {
	wait, err := waitOf(r, traceWait)
	if err != nil {
		fail(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	b, err := s.opts.Trace(ctx)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Write(b)
}
