package metrics

import (
	"bytes"
	"log"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"adbuffer/internal/machine/rates"
)

// PageOptions are the options of NewPage.
type PageOptions struct {
	// Acquire waits for a Turn to compute; see package cpushare.
	Acquire func() (Turn, error)
	Errors  *log.Logger
}

// Turn is the right to compute until Release. Pause lets requests that are ready run.
type Turn interface {
	Pause()
	Release()
}

const (
	// pageRate is how many snapshots may be made in a second on average, and pageBurst how many at once. Scrapes are
	// not limited, since they share snapshots.
	pageRate  = 1
	pageBurst = 4
	// pageAge is how long a snapshot serves scrapes: until the next snapshot may be made.
	pageAge = time.Second / pageRate
)

// page is the handler of /metrics. All scrapes share its snapshots, and promhttp's responses that were made from
// them.
type page struct {
	registry   prometheus.Gatherer
	opts       PageOptions
	negotiator http.Handler // promhttp's handler without metrics, whose response tells which representation a client accepts
	epoch      time.Time
	bucket     rates.Bucket // limits how often snapshots are made

	mu      sync.Mutex // held while a snapshot or a response is made; guards the fields below
	current *snapshot  // nil if it would be older than pageAge
}

// snapshot holds the series of one moment.
type snapshot struct {
	families  []*dto.MetricFamily
	err       error // the error of Gather, which may return families nevertheless
	responses map[representation]*storedResponse
}

// Gather implements prometheus.Gatherer.
func (s *snapshot) Gather() ([]*dto.MetricFamily, error) { return s.families, s.err }

// representation says how a response is encoded. A snapshot is encoded once for each representation, so there are
// few. The escaping scheme that a client asks for is not part of it, since no name needs escaping.
type representation struct {
	format expfmt.FormatType
	coding string // "gzip" or ""
}

// NewPage returns the handler of /metrics. A request with Cache-Control: no-cache gets the current
// values whatever that costs, so the caller decides which clients may send it.
func NewPage(registry prometheus.Gatherer, o PageOptions) http.Handler {
	p := &page{registry: registry, opts: o, epoch: time.Now()}
	p.negotiator = p.promhttp(prometheus.NewRegistry(), nil)
	p.bucket.Start(0, pageRate, pageBurst, 0)
	return p
}

// promhttp returns promhttp's handler of what g gathers. errors is nil if clients can cause the errors.
func (p *page) promhttp(g prometheus.Gatherer, errors promhttp.Logger) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{
		ErrorLog: errors, ErrorHandling: promhttp.ContinueOnError,
		AcceptedFormats: []expfmt.Format{expfmt.NewFormat(expfmt.TypeOpenMetrics), expfmt.NewFormat(expfmt.TypeProtoDelim), expfmt.NewFormat(expfmt.TypeTextPlain)},
	})
}

// ServeHTTP implements http.Handler.
func (p *page) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	empty := newStoredResponse()
	p.negotiator.ServeHTTP(empty, &http.Request{Header: q.Header})
	f := representation{expfmt.Format(empty.header.Get("Content-Type")).FormatType(), empty.header.Get("Content-Encoding")}
	r, err := p.respond(f, strings.EqualFold(q.Header.Get("Cache-Control"), "no-cache"))
	if err != nil {
		http.Error(w, "the metrics cannot be shown: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	for name, values := range r.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(r.body.Len()))
	w.WriteHeader(r.status)
	w.Write(r.body.Bytes())
}

// respond returns the response in representation f. If fresh is set, the response is made from a new snapshot.
func (p *page) respond(f representation, fresh bool) (*storedResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.current
	if fresh || p.bucket.Take(time.Since(p.epoch)) {
		s = nil
	}
	if s != nil && s.responses[f] != nil {
		return s.responses[f], nil
	}
	turn, err := p.opts.Acquire()
	if err != nil {
		return nil, err
	}
	defer turn.Release()
	if s == nil {
		s = p.gather()
	}
	r := newStoredResponse()
	r.pause, r.lastPause = turn.Pause, time.Now()
	p.promhttp(s, p.opts.Errors).ServeHTTP(r, &http.Request{Header: http.Header{"Accept": {string(expfmt.NewFormat(f.format))}, "Accept-Encoding": {f.coding}}})
	r.pause = nil
	s.responses[f] = r
	return r, nil
}

// gather makes a new snapshot, which is current for pageAge.
func (p *page) gather() *snapshot {
	s := &snapshot{responses: make(map[representation]*storedResponse)}
	s.families, s.err = p.registry.Gather()
	p.current = s
	time.AfterFunc(pageAge, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.current == s {
			p.current = nil
		}
	})
	return s
}

// storedResponse is a response that can be sent to several clients.
type storedResponse struct {
	header    http.Header
	status    int
	body      bytes.Buffer
	pause     func() // lets requests run while the response is written; nil = not needed
	lastPause time.Time
}

func newStoredResponse() *storedResponse {
	return &storedResponse{header: make(http.Header), status: http.StatusOK}
}

// Header implements http.ResponseWriter.
func (r *storedResponse) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *storedResponse) WriteHeader(status int) { r.status = status }

// Write implements http.ResponseWriter. It pauses each 0.2 ms, so that requests need not wait for a core until the
// response is complete.
func (r *storedResponse) Write(b []byte) (int, error) {
	if r.pause != nil && time.Since(r.lastPause) >= 200*time.Microsecond {
		r.pause()
		r.lastPause = time.Now()
	}
	return r.body.Write(b)
}
