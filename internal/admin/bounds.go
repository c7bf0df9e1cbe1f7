package admin

import (
	"fmt"
	"net/http"
	"time"
)

const (
	// readerPatience is how long a client may take to read what one Write has written. Without it,
	// a client that does not read would hold its response in memory forever.
	readerPatience = 30 * time.Second
	// maxScrapes is how many responses to /metrics may be in progress. They need no token, and each
	// holds its whole text.
	maxScrapes = 16
)

// boundedWriter gives each Write readerPatience. A handler that waits, such as a profile, may take
// longer in total.
type boundedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		c.SetWriteDeadline(time.Time{}) //nolint:errcheck // net/http's writers support it
		next.ServeHTTP(&boundedWriter{w, c}, r)
	})
}

// Write implements http.ResponseWriter.
func (w *boundedWriter) Write(b []byte) (int, error) {
	w.control.SetWriteDeadline(time.Now().Add(readerPatience)) //nolint:errcheck // as above
	return w.ResponseWriter.Write(b)
}

// Unwrap serves http.ResponseController.
func (w *boundedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// limitScrapes refuses scrapes above maxScrapes.
func limitScrapes(next http.Handler) http.Handler {
	inProgress := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case inProgress <- struct{}{}:
		default:
			text(w, http.StatusServiceUnavailable, fmt.Sprintf("%d scrapes are in progress, which is the limit", maxScrapes))
			return
		}
		defer func() { <-inProgress }()
		next.ServeHTTP(w, r)
	})
}
