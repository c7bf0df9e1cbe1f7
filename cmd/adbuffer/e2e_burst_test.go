package main

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/sspsim"
)

// watch polls the metrics until stop, and keeps the highest of each of names.
func (ab *adbuffer) watch(names ...string) (stop func() map[string]float64) {
	highest := map[string]float64{}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			_, text, err := ab.tryAsk("/metrics")
			if err != nil {
				ab.t.Error(err)
				return
			}
			m := parseMetrics(ab.t, text)
			for _, name := range names {
				for _, s := range m.all(name) {
					highest[name+s.labels] = max(highest[name+s.labels], s.value)
					highest[name] = max(highest[name], s.value)
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

// Ten times as many requests as the pool has places, again and again: never one
// connection above max_conns, never one waiter above max_pending.
func TestLimitsOfThePoolHoldUnderBursts(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		options  sspsim.Options
		settings string
		places   int   // that the pool can lend
		inFlight int64 // at the SSP, those on connections that drain included
	}{
		{"http1", sspsim.Options{}, "protocol: http1", 8, 8},
		{"pipelined", sspsim.Options{}, "protocol: http1-pipelined", 32, 8},
		{"http2", sspsim.Options{Protocol: sspsim.H2C}, "protocol: h2c", 40, 160},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			o := row.options
			o.Behaviour.Latency = sspsim.Lognormal(5*time.Millisecond, 40*time.Millisecond)
			o.Behaviour.Connections.MaxRequests = 50 // so that it dials under load
			o.Behaviour.Connections.Announce = true
			o.Behaviour.Answer.Echo = true
			s := startSSP(t, o)
			ab := start(t, single(s.URL(), row.settings,
				"pool: {max_conns: 8, max_http2_conns: 2, max_pending: 10, pending_timeout: 30ms, max_dials: 3, pipeline_depth: 4, max_streams_per_conn: 20}"),
				"ADBUFFER_SSP_DEFAULTS_POOL_PENDING_TIMEOUT=30ms")
			stop := ab.watch("adbuffer_pool_connections", "adbuffer_pool_pending_requests", "adbuffer_pool_saturation_ratio")
			var open, most atomic.Int64
			watching, watched := make(chan struct{}), make(chan struct{})
			go func() { // the SSP's own count
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
			var all tally
			clients := 10 * row.places
			ab.concurrently(clients, func(w *worker) error {
				for i := range 4000 / clients {
					id := strconv.Itoa(w.id*1000 + i)
					a, err := w.exchange("GET", "/fillbuffer?cb="+id, "")
					if err != nil {
						return err
					}
					all.add(a)
					if a.status == 200 && a.header("X-Echo-Cb") != id {
						t.Errorf("request %s was given the answer to %s", id, a.header("X-Echo-Cb"))
					}
				}
				return nil
			})
			close(watching)
			<-watched
			highest := stop()
			all.log(t, row.name)
			t.Logf("%s: at most %d connections and %d requests at the SSP, %v waiting, %v saturated", row.name, most.Load(), s.Counters().MaxInFlight,
				highest["adbuffer_pool_pending_requests"], highest["adbuffer_pool_saturation_ratio"])
			// A connection that adbuffer has closed is the SSP's until it has seen
			// that; no more than max_dials can have come in their place. That
			// max_conns itself holds to the last one internal/pool proves.
			if most.Load() > 8+3 {
				t.Errorf("%d connections at the SSP, want at most max_conns, 8, and those it has not seen closed", most.Load())
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
				if all.of(reason) == 0 {
					t.Errorf("nothing ended as %s: this was no burst", reason)
				}
			}
			// What the SSP did not process is sent again, if the queue has room.
			lost := all.of("proxy/conn_lost 502")
			if got := all.of("ssp/openx 200") + all.of("proxy/pending_full 503") + all.of("proxy/pending_timeout 503") + lost; got != all.total() || lost > all.total()/20 {
				t.Error("some ended otherwise")
			}
			// The books agree with what clients saw.
			ab.wantMetric(float64(all.of("proxy/pending_full 503")), "adbuffer_ssp_requests_total", "outcome=pending_full")
			ab.wantMetric(float64(all.of("ssp/openx 200")), "adbuffer_ssp_requests_total", "outcome=fill")
		})
	}
}

func TestMaxBufferedBytesHoldsUnderBursts(t *testing.T) {
	t.Parallel()
	const limit = 200_000
	s := sspWith(t, sspsim.Behaviour{
		Latency: sspsim.Constant(10 * time.Millisecond),
		Answer:  sspsim.Answer{Kind: sspsim.Raw, Size: sspsim.Size{Constant: 15_000}, Chunked: sspsim.Every(2)},
	})
	ab := start(t, sprintf("server: {max_buffered_bytes: %d}\n", limit)+single(s.URL()))
	stop := ab.watch("adbuffer_buffered_bytes", "adbuffer_in_flight_requests")
	var all tally
	body := strings.Repeat("b", 10_000)
	ab.concurrently(80, func(w *worker) error { // 10 times what 8 of them need
		for range 40 {
			a, err := w.exchange("POST", "/fillbuffer", body)
			if err != nil {
				return err
			}
			all.add(a)
		}
		return nil
	})
	highest := stop()
	all.log(t, "POST")
	t.Logf("gauges %v", highest)
	if n := highest["adbuffer_buffered_bytes"]; n > limit || n < limit/4 {
		t.Errorf("buffered_bytes rose to %v, want close to %d and never above", n, limit)
	}
	if all.of("ssp/openx 200") == 0 || all.of("proxy/overloaded 503") == 0 || all.of("ssp/openx 200")+all.of("proxy/overloaded 503") != all.total() {
		t.Error("want fills and overloaded, and nothing else")
	}
}
