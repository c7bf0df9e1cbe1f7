package admin

import (
	"testing"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

func TestPrometheusScrapesSaturation(t *testing.T) {
	t.Parallel()
	s := e2e.StartGated(t, sspsim.Options{})
	ab := e2e.Start(t, e2e.Single(s.URL(), "pool: {max_conns: 4, max_pending: 8, pending_timeout: 10m}"), "ADBUFFER_DEADLINE_DEFAULT=10m", "ADBUFFER_DEADLINE_MAX=10m")
	p := startPrometheus(t, ab)
	p.await(`up{job="adbuffer"}`, 1)
	p.await(`adbuffer_pool_saturation_ratio{ssp="openx"}`, 0)

	var clients []*e2e.Client
	for i := range 6 { // 4 requests with a place, and 2 that wait
		c := ab.Dial()
		c.Send(e2e.Request("GET", "/fillbuffer", ""))
		clients = append(clients, c)
		e2e.AwaitInFlight(t, s.SSP, min(int64(i+1), 4))
	}
	p.await(`adbuffer_pool_saturation_ratio{ssp="openx"}`, 1)
	p.await(`adbuffer_pool_places_in_use / adbuffer_pool_places_limit`, 1)
	p.await(`adbuffer_pool_pending_requests / adbuffer_pool_pending_requests_limit`, 0.25)
	p.await(`sum(adbuffer_pool_connections{state="active"}) / sum(adbuffer_pool_connections_limit)`, 1)
	p.await(`adbuffer_in_flight_requests`, 6)
	s.Open()
	for _, c := range clients {
		c.Read("GET").WantFill("openx")
	}
	p.await(`adbuffer_pool_saturation_ratio{ssp="openx"}`, 0)
	p.await(`adbuffer_pool_saturation_max_ratio{ssp="openx"}`, 1) // the maximum is not lost between scrapes
	p.await(`max_over_time(adbuffer_pool_saturation_ratio{ssp="openx"}[1m])`, 1)
	p.await(`sum(adbuffer_requests_total{route="default",outcome="fill"})`, 6)
	// Two of six arrivals found the pool full: the arrivals above the 0.999 bucket.
	p.await(`adbuffer_pool_saturation_at_arrival_ratio_count - ignoring(le) adbuffer_pool_saturation_at_arrival_ratio_bucket{le="0.999"}`, 2)
	p.await(`sum(adbuffer_pool_acquire_seconds_count{outcome="waited"})`, 2)
	// The rules of deploy/prometheus use these metrics.
	testsupport.Eventually(t, "the recording rule has a mean of the saturation", func() bool {
		v, ok := p.query(`instance_ssp:adbuffer_pool_saturation:avg5m{ssp="openx"}`)
		return ok && v > 0 && v < 1
	})
}
