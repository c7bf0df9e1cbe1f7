package metrics

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"adbuffer/internal/rates"
)

// PageOptions say how the page of /metrics is made.
type PageOptions struct {
	// During runs a function while the objects that sources read stay valid.
	During func(func())
	// Acquire waits for the turn to compute; see package cpushare. nil = at once.
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
	// scrape needs no token, and takes 10 ms of CPU with 50 SSPs.
	pageRate  = 1
	pageBurst = 4
	// pageAge is how long a snapshot serves scrapes: until the next one may be made.
	pageAge = time.Second / pageRate
)

// page is the handler of /metrics. All scrapes share its snapshots, and the texts that are made of them.
type page struct {
	registry *Registry
	opts     PageOptions
	epoch    time.Time
	bucket   rates.Bucket // of snapshots

	mu      sync.Mutex // held while a snapshot or a text is made; guards the fields below
	current *snapshot  // nil = none, or it is too old
}

// snapshot holds the series of one moment.
type snapshot struct {
	families []*dto.MetricFamily
	texts    map[variant][]byte
}

// variant is a form of the page.
type variant struct {
	format expfmt.Format
	gzip   bool
}

// Handler returns the handler of /metrics. A request with Cache-Control: no-cache gets the current
// values whatever that costs, so the caller decides which clients may send it.
func (r *Registry) Handler(o PageOptions) http.Handler {
	if o.Acquire == nil {
		o.Acquire = func() (Turn, error) { return freeTurn{}, nil }
	}
	p := &page{registry: r, opts: o, epoch: time.Now()}
	p.bucket.Start(0, pageRate, pageBurst, 0)
	return p
}

// ServeHTTP implements http.Handler.
func (p *page) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	v := variant{formatFor(q.Header), acceptsGzip(q.Header)}
	text, err := p.text(v, strings.EqualFold(q.Header.Get("Cache-Control"), "no-cache"))
	if err != nil {
		http.Error(w, "the metrics cannot be shown: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	h := w.Header()
	h.Set("Content-Type", string(v.format))
	h.Set("Vary", "Accept-Encoding")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	if v.gzip {
		h.Set("Content-Encoding", "gzip")
	}
	w.Write(text) //nolint:errcheck // the client has gone
}

// text returns the page as v, in any case of a new snapshot if fresh is set.
func (p *page) text(v variant, fresh bool) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.current
	if fresh || p.bucket.Take(time.Since(p.epoch)) {
		s = nil
	}
	if s != nil && s.texts[v] != nil {
		return s.texts[v], nil
	}
	turn, err := p.opts.Acquire()
	if err != nil {
		return nil, err
	}
	defer turn.Release()
	if s == nil {
		s, err = p.gather(turn)
		if err != nil {
			return nil, err
		}
	}
	s.texts[v], err = s.encode(v, turn)
	return s.texts[v], err
}

// gather makes a new snapshot current, for pageAge.
func (p *page) gather(turn Turn) (*snapshot, error) {
	s := &snapshot{texts: make(map[variant][]byte)}
	var err error
	p.opts.During(func() { s.families, err = p.registry.gather(turn.Pause) })
	if err != nil {
		p.opts.Errors.Println("error gathering metrics:", err)
		if len(s.families) == 0 {
			return nil, err
		}
	}
	p.current = s
	time.AfterFunc(pageAge, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.current == s {
			p.current = nil
		}
	})
	return s, nil
}

// encode returns the text of s as v.
func (s *snapshot) encode(v variant, turn Turn) ([]byte, error) {
	var b bytes.Buffer
	var to io.Writer = &b
	var zip *gzip.Writer
	if v.gzip {
		// The fastest level is enough: the text is repetitive, and still shrinks to a twelfth.
		zip, _ = gzip.NewWriterLevel(&b, gzip.BestSpeed)
		to = zip
	}
	encoder := expfmt.NewEncoder(&pacedWriter{Writer: to, turn: turn}, v.format)
	for _, f := range s.families {
		if err := encoder.Encode(f); err != nil {
			return nil, err
		}
	}
	if end, ok := encoder.(expfmt.Closer); ok { // OpenMetrics
		if err := end.Close(); err != nil {
			return nil, err
		}
	}
	if zip != nil {
		if err := zip.Close(); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// A scrape pauses after so many series that it gathers, and after so many bytes that it writes: each
// takes 0.2 ms of CPU. So requests do not wait for a core until the scrape is complete.
const (
	pacedSeries = 128
	pacedBytes  = 32 << 10
)

// pacedWriter is the writer of a text.
type pacedWriter struct {
	io.Writer
	turn       Turn
	sincePause int // bytes
}

// Write implements io.Writer.
func (w *pacedWriter) Write(b []byte) (int, error) {
	w.sincePause += len(b)
	if w.sincePause >= pacedBytes {
		w.sincePause = 0
		w.turn.Pause()
	}
	return w.Writer.Write(b)
}

// freeTurn is a turn without a bound.
type freeTurn struct{}

func (freeTurn) Pause()   { time.Sleep(time.Microsecond) }
func (freeTurn) Release() {}

// formats are the forms of the page that a client may ask for. They are few, since each snapshot is
// encoded once for each. The escaping that a client asks for changes nothing: no name needs any.
var formats = func() (all [3]expfmt.Format) {
	for i, accept := range []string{
		"text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0",
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
	} {
		all[i] = expfmt.NegotiateIncludingOpenMetrics(http.Header{"Accept": {accept}})
	}
	return all
}()

// formatFor returns the format that a client accepts; text if it accepts none.
func formatFor(h http.Header) expfmt.Format {
	wanted := expfmt.NegotiateIncludingOpenMetrics(h)
	for _, f := range formats {
		if f.FormatType() == wanted.FormatType() && (f.FormatType() != expfmt.TypeOpenMetrics || strings.Contains(string(wanted), "version=1.0.0")) {
			return f
		}
	}
	return formats[0]
}

// acceptsGzip reports whether a client accepts gzip (RFC 9110, section 12.5.3).
func acceptsGzip(h http.Header) bool {
	for _, line := range h.Values("Accept-Encoding") {
		for item := range strings.SplitSeq(line, ",") {
			coding, weight, weighted := strings.Cut(item, ";")
			if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
				continue
			}
			_, value, _ := strings.Cut(weight, "=")
			q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return !weighted || err == nil && q > 0
		}
	}
	return false
}
