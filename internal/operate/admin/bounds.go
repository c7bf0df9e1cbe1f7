package admin

import (
	"fmt"
	"net/http"
	"time"
)

const (
	// readerPatience is how long a client may take to read what one Write has written. Otherwise a
	// client that does not read would keep its response in memory forever.
	readerPatience = 30 * time.Second
	// maxScrapes is how many responses to /metrics may be in progress. A scrape needs no token, and
	// holds its whole text in memory.
	maxScrapes = 16
	// scrapeWait is how long a scrape waits for another scrape to end before it drops one: a scrape ends within
	// milliseconds if its client reads.
	scrapeWait = 250 * time.Millisecond
	// scrapePatience is how long a scrape waits for the place of a scrape that was dropped.
	scrapePatience = time.Second
)

// boundedWriter limits each Write to readerPatience. A handler that waits between writes, such as a
// profile, may take longer in total.
type boundedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	first   func() // called before the first Write; may be nil
}

func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		c.SetWriteDeadline(time.Time{})
		if r.Method == http.MethodGet && r.ContentLength != 0 {
			w.Header().Set("Connection", "close") // otherwise net/http would wait for the unread body
		}
		next.ServeHTTP(&boundedWriter{ResponseWriter: w, control: c}, r)
	})
}

// Write implements http.ResponseWriter.
func (w *boundedWriter) Write(b []byte) (int, error) {
	if w.first != nil {
		w.first()
		w.first = nil
	}
	w.control.SetWriteDeadline(time.Now().Add(readerPatience))
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController find the ResponseWriter of net/http.
func (w *boundedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// limitScrapes limits the concurrent calls of next to maxScrapes. If none of them ends within scrapeWait, a
// further scrape drops the scrape whose response was begun first. So clients that do not read cannot lock out
// Prometheus. The writer of next is a boundedWriter.
func (c *connections) limitScrapes(next http.Handler) http.Handler {
	places := make(chan struct{}, maxScrapes)
	acquire := func() bool {
		select {
		case places <- struct{}{}:
			return true
		case <-time.After(scrapeWait):
		}
		if !c.dropScrape() {
			return false
		}
		select {
		case places <- struct{}{}:
			return true
		case <-time.After(scrapePatience):
			return false
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !acquire() {
			text(w, http.StatusServiceUnavailable, fmt.Sprintf("%d scrapes are in progress, which is the limit", maxScrapes))
			return
		}
		defer func() { <-places }()
		if one, ok := r.Context().Value(connectionKey{}).(*connection); ok {
			w.(*boundedWriter).first = func() { c.noteScrape(one, time.Now()) }
			defer c.noteScrape(one, time.Time{})
		}
		next.ServeHTTP(w, r)
	})
}
