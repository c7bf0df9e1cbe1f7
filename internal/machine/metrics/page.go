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

// PageOptions say how the page of /metrics is made.
type PageOptions struct {
	// Acquire waits for the turn to compute; see package cpushare.
	Acquire func() (Turn, error)
	Errors  *log.Logger
}

// Turn is the right to compute until Release. Pause lets requests that are ready run.
type Turn interface {
	Pause()
	Release()
}

const (
	// pageRate is how many snapshots are made in a second on average, and pageBurst how many at once. A
	// scrape needs no token.
	pageRate  = 1
	pageBurst = 4
	// pageAge is how long a snapshot serves scrapes: until the next one may be made.
	pageAge = time.Second / pageRate
)

// page is the handler of /metrics. All scrapes share its snapshots, and the responses of promhttp to them.
type page struct {
	registry prometheus.Gatherer
	opts     PageOptions
	forms    http.Handler // promhttp's without any metric: its response says which form the client accepts
	epoch    time.Time
	bucket   rates.Bucket // of snapshots

	mu      sync.Mutex // held while a snapshot or a response is made; guards the fields below
	current *snapshot  // nil = none, or it is too old
}

// snapshot holds the series of one moment.
type snapshot struct {
	families  []*dto.MetricFamily
	err       error // of Gather; some families may be there all the same
	responses map[form]*response
}

// Gather implements prometheus.Gatherer.
func (s *snapshot) Gather() ([]*dto.MetricFamily, error) { return s.families, s.err }

// form is what a client accepts. There are few, since each snapshot is encoded once for each. The escaping of
// names that a client asks for changes nothing, since no name needs any.
type form struct {
	format expfmt.FormatType
	coding string // "gzip" or ""
}

// NewPage returns the handler of /metrics. A request with Cache-Control: no-cache gets the current
// values whatever that costs, so the caller decides which clients may send it.
func NewPage(registry prometheus.Gatherer, o PageOptions) http.Handler {
	p := &page{registry: registry, opts: o, epoch: time.Now()}
	p.forms = p.promhttp(prometheus.NewRegistry(), nil)
	p.bucket.Start(0, pageRate, pageBurst, 0)
	return p
}

// promhttp returns promhttp's handler of what g gathers. errors is nil where clients cause the errors.
func (p *page) promhttp(g prometheus.Gatherer, errors promhttp.Logger) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{
		ErrorLog: errors, ErrorHandling: promhttp.ContinueOnError,
		AcceptedFormats: []expfmt.Format{expfmt.NewFormat(expfmt.TypeOpenMetrics), expfmt.NewFormat(expfmt.TypeProtoDelim), expfmt.NewFormat(expfmt.TypeTextPlain)},
	})
}

// ServeHTTP implements http.Handler.
func (p *page) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	empty := newResponse()
	p.forms.ServeHTTP(empty, &http.Request{Header: q.Header})
	f := form{expfmt.Format(empty.header.Get("Content-Type")).FormatType(), empty.header.Get("Content-Encoding")}
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

// respond returns the response in this form, in any case of a new snapshot if fresh is set.
func (p *page) respond(f form, fresh bool) (*response, error) {
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
	r := newResponse()
	r.pause, r.paused = turn.Pause, time.Now()
	p.promhttp(s, p.opts.Errors).ServeHTTP(r, &http.Request{Header: http.Header{"Accept": {string(expfmt.NewFormat(f.format))}, "Accept-Encoding": {f.coding}}})
	r.pause = nil
	s.responses[f] = r
	return r, nil
}

// gather makes a new snapshot current, for pageAge.
func (p *page) gather() *snapshot {
	s := &snapshot{responses: make(map[form]*response)}
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

// response is a response that is kept.
type response struct {
	header http.Header
	status int
	body   bytes.Buffer
	pause  func() // nil = none
	paused time.Time
}

func newResponse() *response { return &response{header: make(http.Header), status: http.StatusOK} }

// Header implements http.ResponseWriter.
func (r *response) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *response) WriteHeader(status int) { r.status = status }

// Write implements http.ResponseWriter. It pauses each 0.2 ms, so that requests do not wait for a core until the
// response is complete.
func (r *response) Write(b []byte) (int, error) {
	if r.pause != nil && time.Since(r.paused) >= 200*time.Microsecond {
		r.pause()
		r.paused = time.Now()
	}
	return r.body.Write(b)
}
