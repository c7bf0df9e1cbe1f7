package metrics

import (
	"cmp"
	"log"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
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
func (r *Registry) Gather() ([]*dto.MetricFamily, error) {
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

// Handler returns the handler of /metrics. during runs a function while the objects that sources
// read stay valid; the response is sent after it.
func (r *Registry) Handler(during func(func()), errors *log.Logger) http.Handler {
	gather := prometheus.GathererFunc(func() (families []*dto.MetricFamily, err error) {
		during(func() { families, err = r.Gather() })
		return families, err
	})
	// The fastest level is enough: the text is repetitive, and still shrinks to a twelfth.
	zip, err := gzhttp.NewWrapper(gzhttp.CompressionLevel(gzip.BestSpeed), gzhttp.ContentTypeFilter(func(string) bool { return true }))
	if err != nil {
		panic("BUG: " + err.Error())
	}
	text := promhttp.HandlerFor(gather, promhttp.HandlerOpts{
		ErrorLog: errors, ErrorHandling: promhttp.ContinueOnError, EnableOpenMetrics: true, DisableCompression: true,
	})
	return zip(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { text.ServeHTTP(&pacedWriter{ResponseWriter: w}, q) }))
}

// A scrape pauses after so many series that it gathers, and after so many bytes that it writes: each
// takes 0.2 ms of CPU. So requests do not wait for a core until the scrape is complete.
const (
	pacedSeries = 128
	pacedBytes  = 32 << 10
)

// pause lets the core serve requests that are ready.
func pause() { time.Sleep(time.Microsecond) }

// pacedWriter is the writer of a scrape.
type pacedWriter struct {
	http.ResponseWriter
	sincePause int // bytes
}

func (w *pacedWriter) Write(b []byte) (int, error) {
	w.sincePause += len(b)
	if w.sincePause >= pacedBytes {
		w.sincePause = 0
		pause()
	}
	return w.ResponseWriter.Write(b)
}
