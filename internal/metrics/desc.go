// Package metrics counts the events of every request, and makes the series of /metrics.
//
// Histograms and counters are adbuffer's own, because every request uses them. Collectors of
// client_golang create, hash, check and sort an object for each series. Registry.Gather skips that:
// a source makes the messages of client_golang's data model, and expfmt writes them in
// each format. BenchmarkScrapeOf50SSPs in package app measures both ways; ARCHITECTURE.md has
// the figures.
package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Desc describes a metric.
type Desc struct {
	*prometheus.Desc
	name   string
	help   string
	labels []string // in the order of New
	sorted []int    // the indexes of labels in the order of their names
}

// Descs are the descriptions of a source's metrics.
type Descs []*Desc

// New adds the description of a metric with these labels, and returns it. Descriptions are made once,
// for package variables.
func (all *Descs) New(name, help string, labels ...string) *Desc {
	d := &Desc{Desc: prometheus.NewDesc(name, help, labels, nil), name: name, help: help, labels: labels}
	for _, l := range slices.Sorted(slices.Values(labels)) {
		d.sorted = append(d.sorted, slices.Index(labels, l))
	}
	*all = append(*all, d)
	return d
}
