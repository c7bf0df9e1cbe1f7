package metrics

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// Registry is a registry of client_golang that writes the series of a source without its help.
type Registry struct {
	*prometheus.Registry
	few *prometheus.Registry // all other collectors

	mu      sync.Mutex // guards sources
	sources []*source
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{Registry: prometheus.NewRegistry(), few: prometheus.NewRegistry()}
}

// Register adds a collector.
func (r *Registry) Register(c prometheus.Collector) error {
	if err := r.Registry.Register(c); err != nil {
		return err
	}
	s, ok := c.(*source)
	if !ok {
		return r.few.Register(c)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sources = append(r.sources, s)
	return nil
}

// Handler returns the handler of /metrics. during runs a function while the objects that sources
// read stay valid; the response is sent after it.
func (r *Registry) Handler(during func(func()), errors *log.Logger) http.Handler {
	slow := promhttp.HandlerFor(prometheus.GathererFunc(func() (families []*dto.MetricFamily, err error) {
		during(func() { families, err = r.Gather() })
		return families, err
	}), promhttp.HandlerOpts{ErrorLog: errors, ErrorHandling: promhttp.ContinueOnError, EnableOpenMetrics: true})
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		format := expfmt.NegotiateAccept(q.Header, expfmt.DefaultOpenMetricsAcceptedFormats()...)
		switch format.FormatType() {
		case expfmt.TypeTextPlain, expfmt.TypeOpenMetrics, expfmt.TypeProtoDelim:
		default: // protobuf as text, for people
			slow.ServeHTTP(w, q)
			return
		}
		s := scrapes.Get().(*scrape)
		defer scrapes.Put(s)
		var err error
		during(func() { err = s.write(r, format) })
		if err != nil {
			errors.Println("error gathering metrics:", err)
		}
		s.send(w, q, format)
	})
}

// scrape is memory for one scrape; reused.
type scrape struct {
	page page
	text []byte
	out  bytes.Buffer
	gzip *gzip.Writer
}

var scrapes = sync.Pool{New: func() any {
	z, err := gzip.NewWriterLevel(io.Discard, gzipLevel)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return &scrape{gzip: z}
}}

// write writes the text. After an error it keeps the text written so far.
func (s *scrape) write(r *Registry, f expfmt.Format) error {
	s.page.reset(format{openMetrics: f.FormatType() == expfmt.TypeOpenMetrics, protobuf: f.FormatType() == expfmt.TypeProtoDelim})
	r.mu.Lock()
	sources := r.sources
	r.mu.Unlock()
	for _, c := range sources {
		c.series(Sink{page: &s.page})
	}
	s.text = s.page.appendTo(s.text[:0])
	families, err := r.few.Gather()
	few := bytes.NewBuffer(s.text)
	encoder := expfmt.NewEncoder(few, f)
	for _, family := range families {
		if failed := encoder.Encode(family); failed != nil {
			err = failed
		}
	}
	if c, ok := encoder.(expfmt.Closer); ok {
		if failed := c.Close(); failed != nil { // the end mark of OpenMetrics
			err = failed
		}
	}
	s.text = few.Bytes()
	return err
}

// gzipLevel is the fastest: the text is repetitive, so it still shrinks to a twelfth.
const gzipLevel = gzip.BestSpeed

func (s *scrape) send(w http.ResponseWriter, q *http.Request, format expfmt.Format) {
	h := w.Header()
	h.Add("Vary", "Accept")
	h.Add("Vary", "Accept-Encoding")
	h.Set("Content-Type", string(format))
	text := s.text
	if acceptsGzip(q.Header) {
		h.Set("Content-Encoding", "gzip")
		s.out.Reset()
		s.gzip.Reset(&s.out)
		s.gzip.Write(text)
		s.gzip.Close()
		text = s.out.Bytes()
	}
	w.Write(text)
}

// acceptsGzip reports whether Accept-Encoding names gzip without a weight of 0.
func acceptsGzip(h http.Header) bool {
	for coding := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(coding), ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			return strings.Trim(strings.TrimSpace(weight), "qQ=0. ") != "" || weight == ""
		}
	}
	return false
}
