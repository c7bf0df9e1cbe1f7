package ssp

import (
	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/upstream"
)

var (
	descRequests  = prometheus.NewDesc("adbuffer_ssp_requests_total", "Finished requests to an SSP, by how they ended.", []string{"ssp", "outcome"}, nil)
	descDuration  = prometheus.NewDesc("adbuffer_ssp_request_duration_seconds", "Time of a request to an SSP with its wait for a place, its retries and the whole answer, in seconds.", []string{"ssp"}, nil)
	descFirstByte = prometheus.NewDesc("adbuffer_ssp_first_byte_seconds", "Time until the first byte of an SSP's answer, with the wait for a place, in seconds.", []string{"ssp"}, nil)
	descRetries   = prometheus.NewDesc("adbuffer_retries_total", "Requests sent to an SSP once more, by why that was safe.", []string{"ssp", "kind"}, nil)
)

// Collector exports the metrics of SSPs.
type Collector struct {
	ssps func() []*SSP
}

// NewCollector returns a collector of what ssps returns at each scrape.
func NewCollector(ssps func() []*SSP) *Collector { return &Collector{ssps: ssps} }

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descRequests, descDuration, descFirstByte, descRetries} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.ssps() {
		name := s.Name()
		for o := upstream.Fill; o < upstream.Outcomes; o++ {
			ch <- prometheus.MustNewConstMetric(descRequests, prometheus.CounterValue, float64(s.stats.outcomes[o].Load()), name, o.String())
		}
		for k, kind := range retryKindNames {
			ch <- prometheus.MustNewConstMetric(descRetries, prometheus.CounterValue, float64(s.stats.retries[k].Load()), name, kind)
		}
		ch <- s.stats.duration.Metric(descDuration, name)
		ch <- s.stats.firstByte.Metric(descFirstByte, name)
	}
}
