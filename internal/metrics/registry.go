package metrics

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Registry is a registry of client_golang whose sources are gathered without its checks. The embedded
// registry has all collectors, and tests gather from it.
type Registry struct {
	*prometheus.Registry
	others *prometheus.Registry // the collectors that are no sources

	mu      sync.Mutex // guards sources
	sources []*source
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{Registry: prometheus.NewRegistry(), others: prometheus.NewRegistry()}
}

// Register adds a collector.
func (r *Registry) Register(c prometheus.Collector) error {
	if err := r.Registry.Register(c); err != nil {
		return err
	}
	s, ok := c.(*source)
	if !ok {
		return r.others.Register(c)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sources = append(r.sources, s)
	return nil
}

// Gather returns the current series of all collectors. Metrics are sorted by name.
func (r *Registry) Gather() ([]*dto.MetricFamily, error) { return r.gather(freeTurn{}.Pause) }

// gather is Gather that calls pause again and again.
func (r *Registry) gather(pause func()) ([]*dto.MetricFamily, error) {
	r.mu.Lock()
	sources := r.sources
	r.mu.Unlock()
	own := make(map[*Desc]*dto.MetricFamily)
	n := 0
	for _, s := range sources {
		s.series(Sink{put: func(d *Desc, kind dto.MetricType, m *dto.Metric) {
			f := own[d]
			if f == nil {
				f = &dto.MetricFamily{Name: &d.name, Help: &d.help, Type: &kind}
				own[d] = f
			}
			f.Metric = append(f.Metric, m)
			n++
			if n%pacedSeries == 0 {
				pause()
			}
		}})
	}
	all, err := r.others.Gather()
	all = slices.AppendSeq(all, maps.Values(own))
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return all, err
}
