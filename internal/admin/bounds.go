package admin

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// readerPatience is how long a client may take to read what one Write has written. Without it,
	// a client that does not read would hold its response in memory forever.
	readerPatience = 30 * time.Second
	// maxScrapes is how many responses to /metrics may be in progress. They need no token, and each
	// holds its whole text.
	maxScrapes = 16
	// scrapePatience is how long a scrape waits until a dropped one has released its text.
	scrapePatience = time.Second
)

// boundedWriter gives each Write readerPatience. A handler that waits, such as a profile, may take
// longer in total.
type boundedWriter struct {
	http.ResponseWriter
	control *http.ResponseController

	mu      sync.Mutex
	since   time.Time // when the first Write began; zero before
	dropped bool      // each Write fails
}

func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		c.SetWriteDeadline(time.Time{})
		if r.Method == http.MethodGet && r.ContentLength != 0 {
			w.Header().Set("Connection", "close") // otherwise the response waits for a body that is not read
		}
		next.ServeHTTP(&boundedWriter{ResponseWriter: w, control: c}, r)
	})
}

// Write implements http.ResponseWriter.
func (w *boundedWriter) Write(b []byte) (int, error) {
	if !w.begin() {
		return 0, os.ErrDeadlineExceeded
	}
	return w.ResponseWriter.Write(b)
}

func (w *boundedWriter) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dropped {
		return false
	}
	now := time.Now()
	if w.since.IsZero() {
		w.since = now
	}
	w.control.SetWriteDeadline(now.Add(readerPatience))
	return true
}

// drop ends a Write that waits for its reader, and fails each later one.
func (w *boundedWriter) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropped = true
	w.control.SetWriteDeadline(time.Unix(1, 0))
}

// writingSince returns when the first Write began. It is zero before, and once it was dropped.
func (w *boundedWriter) writingSince() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dropped {
		return time.Time{}
	}
	return w.since
}

// Unwrap serves http.ResponseController.
func (w *boundedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// scrapes are the responses to /metrics in progress. One more drops the one that has been read for
// the longest time. So clients that do not read cannot keep Prometheus away.
type scrapes struct {
	places  chan struct{}
	dropped atomic.Uint64
	all     sync.Map   // of *boundedWriter
	mu      sync.Mutex // held by dropLongest: two calls drop two scrapes
}

// limit bounds the scrapes of next, whose writer is a boundedWriter.
func (s *scrapes) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.acquire(r.Context()) {
			text(w, http.StatusServiceUnavailable, fmt.Sprintf("%d scrapes are in progress, which is the limit", maxScrapes))
			return
		}
		defer func() { <-s.places }()
		reader := w.(*boundedWriter)
		s.all.Store(reader, nil)
		defer s.all.Delete(reader)
		next.ServeHTTP(w, r)
	})
}

// acquire acquires a place, and makes room for it if there is none.
func (s *scrapes) acquire(ctx context.Context) bool {
	select {
	case s.places <- struct{}{}:
		return true
	default:
	}
	if !s.dropLongest() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, scrapePatience)
	defer cancel()
	select {
	case s.places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// dropLongest drops a scrape that is being read. It returns false if none is.
func (s *scrapes) dropLongest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var longest *boundedWriter
	var since time.Time
	for w := range s.all.Range {
		if at := w.(*boundedWriter).writingSince(); !at.IsZero() && (longest == nil || at.Before(since)) {
			longest, since = w.(*boundedWriter), at
		}
	}
	if longest == nil {
		return false
	}
	longest.drop()
	s.dropped.Add(1)
	return true
}
