package sspsim

import (
	"crypto/tls"
	"strings"
	"sync"
	"time"
)

// Request is one request as it arrived.
type Request struct {
	Time   time.Time `json:"time"`   // when it was complete
	Conn   uint64    `json:"conn"`   // the connection of the request; 1 is the SSP's first
	Stream uint32    `json:"stream"` // the HTTP/2 stream; 0 in HTTP/1

	Method   string `json:"method"`
	Target   string `json:"target"`   // raw; in HTTP/2 the :path
	Protocol string `json:"protocol"` // HTTP/1.0, HTTP/1.1 or HTTP/2.0
	// Header fields in the order and the spelling of the wire, with HTTP/2's
	// pseudo-header fields in front.
	Header  []Field `json:"header"`
	Body    []byte  `json:"body"` // without framing
	Trailer []Field `json:"trailer,omitempty"`

	// Head holds the raw bytes of an HTTP/1 message head, from the method to the empty line; nil in
	// HTTP/2.
	Head []byte `json:"head,omitempty"`
	// TLS is the state of the connection; nil without TLS.
	TLS *tls.ConnectionState `json:"-"`
}

// Get returns the first value of the header field name, in any case, or "" if there is none.
func (r *Request) Get(name string) string {
	for _, f := range r.Header {
		if strings.EqualFold(f.Name, name) {
			return f.Value
		}
	}
	return ""
}

// Values returns all values of the header field name, in order.
func (r *Request) Values(name string) []string {
	var values []string
	for _, f := range r.Header {
		if strings.EqualFold(f.Name, name) {
			values = append(values, f.Value)
		}
	}
	return values
}

// recorder keeps the last len(ring) requests.
type recorder struct {
	mu   sync.Mutex
	ring []*Request
	n    int // requests recorded so far; the next goes to ring[n % len(ring)]
}

func (r *recorder) put(q *Request) {
	r.mu.Lock()
	r.ring[r.n%len(r.ring)] = q
	r.n++
	r.mu.Unlock()
}

// Requests returns the last Options.Record requests, the oldest first.
func (s *SSP) Requests() []*Request {
	r := &s.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := min(r.n, len(r.ring))
	all := make([]*Request, 0, kept)
	for i := r.n - kept; i < r.n; i++ {
		all = append(all, r.ring[i%len(r.ring)])
	}
	return all
}

// watching reports whether requests are recorded or observed. If not, no Request is built.
func (s *SSP) watching() bool { return len(s.recorder.ring) > 0 || s.opts.OnRequest != nil }

func (s *SSP) watch(q *Request) {
	if len(s.recorder.ring) > 0 {
		s.recorder.put(q)
	}
	if s.opts.OnRequest != nil {
		s.opts.OnRequest(q)
	}
}
