package failing

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"adbuffer/internal/test/e2e"
)

// meeting is an SSP that responds to a round of requests when all have arrived, so each request has
// its own connection. It closes the connections of the last round without a response.
type meeting struct {
	size, rounds int

	mu      sync.Mutex
	arrived int
	full    []chan struct{} // closed when the round is complete
}

func newMeeting(size, rounds int) *meeting {
	m := &meeting{size: size, rounds: rounds}
	for range rounds {
		m.full = append(m.full, make(chan struct{}))
	}
	return m
}

func (m *meeting) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	m.mu.Lock()
	round := m.arrived / m.size
	m.arrived++
	if m.arrived%m.size == 0 && round < m.rounds {
		close(m.full[round])
	}
	m.mu.Unlock()
	if round < m.rounds {
		<-m.full[round]
	}
	if round == m.rounds-1 {
		panic(http.ErrAbortHandler) // net/http closes the connection
	}
	_, _ = io.WriteString(w, `{"seatbid":[{"bid":[{"price":1}]}]}`)
}

// An SSP that restarts closes all its connections at once, while requests are on them. Each
// connection has carried enough responses to pay for the retry of a GET.
func TestRestartOfAnSSPLosesNoGET(t *testing.T) {
	t.Parallel()
	const clients, rounds = 32, 6
	s := httptest.NewServer(newMeeting(clients, rounds))
	t.Cleanup(s.Close)
	ab := e2e.Start(t, e2e.Single(s.URL, "protocol: http1"))
	var all e2e.Tally
	for range rounds {
		// A round begins when the round before has ended.
		ab.Concurrently(clients, func(w *e2e.Worker) error {
			a, err := w.Exchange("GET", "/fillbuffer", "")
			if err == nil {
				all.Add(a)
			}
			return err
		})
	}
	if n := all.Of("ssp/openx 200"); n != clients*rounds {
		t.Errorf("%d of %d requests were filled", n, clients*rounds)
		t.Logf("%s: %v", "responses", &all)
	}
	ab.WantMetric(clients, "adbuffer_retries_total", "kind=stale")
}
