package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/logs"
)

const (
	// maxTails is how many clients may follow requests at once. While at least one client does, each
	// request costs a record.
	maxTails = 8
	// tailBeat is how often /tail reports the number of skipped requests, and so detects a client that
	// has disconnected.
	tailBeat = time.Second
)

// tail sends a line of JSON for each request that ends and passes the filter in the query, until the client
// disconnects.
func (s *Server) tail(w http.ResponseWriter, r *http.Request) {
	f, err := s.filterOf(r.URL.Query())
	if err != nil {
		text(w, http.StatusBadRequest, err.Error())
		return
	}
	if s.tails.Add(1) > maxTails {
		s.tails.Add(-1)
		text(w, http.StatusTooManyRequests, fmt.Sprintf("%d clients follow requests already, which is the limit", maxTails))
		return
	}
	defer s.tails.Add(-1)
	watcher := s.opts.Requests.Watch(f)
	defer watcher.Stop()
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := http.NewResponseController(w)
	send := func(v any) bool {
		b, err := json.Marshal(v)
		if err != nil {
			return false
		}
		if _, err := w.Write(append(b, '\n')); err != nil {
			return false
		}
		return out.Flush() == nil
	}
	w.WriteHeader(http.StatusOK)
	out.Flush()
	beat := time.NewTicker(tailBeat)
	defer beat.Stop()
	skipped := uint64(0)
	for {
		select {
		case <-r.Context().Done():
			return
		case rec := <-watcher.Records():
			if !send(rec) {
				return
			}
		case <-beat.C:
			if n := watcher.Skipped(); n > skipped {
				if !send(map[string]uint64{"skipped": n - skipped}) {
					return
				}
				skipped = n
			}
		}
	}
}

// filterOf reads the filter from the query. A filter that no request can pass is an error, since the client
// would wait forever.
func (s *Server) filterOf(q url.Values) (logs.Filter, error) {
	f := logs.Filter{ID: q.Get("id"), Route: q.Get("route"), SSP: q.Get("ssp"), Outcome: q.Get("outcome")}
	if f.ID != "" && !header.IsRequestID(f.ID) {
		return f, errors.New("id must be the id of a request: 1 to 128 letters, digits, dots, underscores and hyphens")
	}
	if f.Outcome != "" && !exchange.IsOutcome(f.Outcome) {
		return f, fmt.Errorf("there is no outcome %q; deploy/prometheus/RUNBOOK.md lists the outcomes", f.Outcome)
	}
	if f.SSP != "" {
		var known []string
		for _, state := range s.opts.SSPs.States() {
			known = append(known, state.SSP)
		}
		if !slices.Contains(known, f.SSP) {
			return f, &UnknownError{"SSP", f.SSP, known}
		}
	}
	if f.Route != "" && f.Route != logs.NoRoute {
		if known := s.opts.Routes(); !slices.Contains(known, f.Route) {
			return f, &UnknownError{"route", f.Route, known}
		}
	}
	if v := q.Get("slow"); v != "" {
		var err error
		f.Slow, err = time.ParseDuration(v)
		if err != nil || f.Slow < 0 {
			return f, errors.New("slow must be a duration, for example 100ms")
		}
	}
	return f, nil
}
