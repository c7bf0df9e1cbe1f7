package limits

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
)

// watch polls the metrics until stop, and keeps the highest value of each.
func watch(ab *e2e.Process, names ...string) (stop func() map[string]float64) {
	highest := map[string]float64{}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			_, text, err := ab.TryAskAdmin("/metrics")
			if err != nil {
				ab.T.Error(err)
				return
			}
			m := e2e.ParseMetrics(ab.T, text)
			for _, name := range names {
				for _, s := range m.All(name) {
					highest[name+s.Labels] = max(highest[name+s.Labels], s.Value)
					highest[name] = max(highest[name], s.Value)
				}
			}
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() map[string]float64 {
		close(done)
		<-ended
		return highest
	}
}

// Repeated bursts have ten times as many requests as the pool has places. There is never one
// connection above max_conns, and never one waiter above max_pending.
func TestLimitsOfThePoolHoldUnderBursts(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		options  sspsim.Options
		settings string
		places   int   // the pool's places
		inFlight int64 // at the SSP, including requests on connections that drain
	}{
		{"http1", sspsim.Options{}, "protocol: http1", 8, 8},
		{"pipelined", sspsim.Options{}, "protocol: http1-pipelined", 32, 8},
		{"http2", sspsim.Options{Protocol: sspsim.H2C}, "protocol: h2c", 40, 160},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			o := row.options
			o.Behaviour.Latency = sspsim.Lognormal(5*time.Millisecond, 40*time.Millisecond)
			o.Behaviour.Connections.MaxRequests = 50 // so that adbuffer dials under load
			o.Behaviour.Connections.Announce = true
			o.Behaviour.Response.Echo = true
			s := e2e.StartSSP(t, o)
			ab := e2e.Start(t, e2e.Single(s.URL(), row.settings,
				"pool: {max_conns: 8, max_http2_conns: 2, max_pending: 10, pending_timeout: 30ms, max_dials: 3, pipeline_depth: 4, max_streams_per_conn: 20}"))
			stop := watch(ab, "adbuffer_pool_connections", "adbuffer_pool_pending_requests", "adbuffer_pool_saturation_ratio")
			var open, most atomic.Int64
			watching, watched := make(chan struct{}), make(chan struct{})
			go func() { // it polls the SSP's own count
				defer close(watched)
				for {
					select {
					case <-watching:
						return
					case <-time.After(time.Millisecond):
						open.Store(s.Counters().OpenConnections)
						most.Store(max(most.Load(), open.Load()))
					}
				}
			}()
			var all e2e.Tally
			clients := 10 * row.places
			ab.Concurrently(clients, func(w *e2e.Worker) error {
				for i := range 4000 / clients {
					id := strconv.Itoa(w.Id*1000 + i)
					a, err := w.Exchange("GET", "/fillbuffer?cb="+id, "")
					if err != nil {
						return err
					}
					all.Add(a)
					if a.Status == 200 && a.Header("X-Echo-Cb") != id {
						t.Errorf("request %s was given the response to %s", id, a.Header("X-Echo-Cb"))
					}
				}
				return nil
			})
			close(watching)
			<-watched
			highest := stop()
			all.Log(t, row.name)
			t.Logf("%s: at most %d connections and %d requests at the SSP, %v waiting, %v saturated", row.name, most.Load(), s.Counters().MaxInFlight,
				highest["adbuffer_pool_pending_requests"], highest["adbuffer_pool_saturation_ratio"])
			// The SSP counts a connection until it sees adbuffer's close. At most max_dials new
			// connections can exist beside such old ones. internal/pool proves that max_conns holds
			// exactly.
			if most.Load() > 8+3 {
				t.Errorf("%d connections at the SSP, want at most max_conns, 8, and those that the SSP has not seen closed", most.Load())
			}
			if n := s.Counters().MaxInFlight; n > row.inFlight {
				t.Errorf("%d requests in flight at the SSP, want at most %d", n, row.inFlight)
			}
			for name, limit := range map[string]float64{
				"adbuffer_pool_pending_requests": 10, "adbuffer_pool_saturation_ratio": 1, // of places_limit
				`adbuffer_pool_connections{protocol="unknown",ssp="openx",state="dialing"}`: 3,
			} {
				if n, ok := highest[name]; n > limit || !ok {
					t.Errorf("%s rose to %v, want at most %v", name, n, limit)
				}
			}
			for _, reason := range []string{"ssp/openx 200", "proxy/pending_full 503"} {
				if all.Of(reason) == 0 {
					t.Errorf("no request ended as %s: this was no burst", reason)
				}
			}
			// Requests that the SSP did not process are sent again, if the queue has room.
			lost := all.Of("proxy/conn_lost 502")
			if got := all.Of("ssp/openx 200") + all.Of("proxy/pending_full 503") + all.Of("proxy/pending_timeout 503") + lost; got != all.Total() || lost > all.Total()/20 {
				t.Error("some requests ended in another way")
			}
			// The counters agree with the responses that clients received.
			ab.WantMetric(float64(all.Of("proxy/pending_full 503")), "adbuffer_ssp_requests_total", "outcome=pending_full")
			ab.WantMetric(float64(all.Of("ssp/openx 200")), "adbuffer_ssp_requests_total", "outcome=fill")
		})
	}
}

func TestMaxBufferedBytesHoldsUnderBursts(t *testing.T) {
	t.Parallel()
	const limit = 200_000
	s := e2e.SSPWith(t, sspsim.Behaviour{
		Latency:  sspsim.Constant(10 * time.Millisecond),
		Response: sspsim.Response{Kind: sspsim.Raw, Size: sspsim.Size{Constant: 15_000}, Chunked: sspsim.Every(2)},
	})
	ab := e2e.Start(t, fmt.Sprintf("server: {max_buffered_bytes: %d}\n", limit)+e2e.Single(s.URL(), fmt.Sprintf("max_buffered_bytes: %d", 2*limit)))
	stop := watch(ab, "adbuffer_buffered_bytes", "adbuffer_in_flight_requests")
	var all e2e.Tally
	body := strings.Repeat("b", 10_000)
	ab.Concurrently(80, func(w *e2e.Worker) error { // 10 times as many requests as 8 places serve
		for range 40 {
			a, err := w.Exchange("POST", "/fillbuffer", body)
			if err != nil {
				return err
			}
			all.Add(a)
		}
		return nil
	})
	highest := stop()
	all.Log(t, "POST")
	t.Logf("gauges %v", highest)
	if n := highest["adbuffer_buffered_bytes"]; n > limit || n < limit/4 {
		t.Errorf("buffered_bytes rose to %v, want close to %d and never above", n, limit)
	}
	if all.Of("ssp/openx 200") == 0 || all.Of("proxy/overloaded 503") == 0 || all.Of("ssp/openx 200")+all.Of("proxy/overloaded 503") != all.Total() {
		t.Error("want only fills and overloaded")
	}
}
