package sspsim

import (
	"crypto/tls"
	"strings"
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

	// Respond is the response that OnRequest chooses for this request. Code 0 leaves the choice to the
	// behaviour.
	Respond Status `json:"-"`
}

// Get returns the first value of the header field name, in any case, or "" if there is none.
func (r *Request) Get(name string) string {
	if values := r.Values(name); len(values) > 0 {
		return values[0]
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

// fieldsOf returns the fields of a protocol's own list; nil if it is empty.
func fieldsOf[T any](list []T, field func(T) Field) (fields []Field) {
	for _, f := range list {
		fields = append(fields, field(f))
	}
	return fields
}

// Requests returns the last Options.Record requests, the oldest first.
func (s *SSP) Requests() []*Request {
	s.recording.Lock()
	defer s.recording.Unlock()
	return append([]*Request{}, s.recorded...)
}

// watching reports whether requests are recorded or observed. If not, no Request is built.
func (s *SSP) watching() bool { return s.opts.Record > 0 || s.opts.OnRequest != nil }

// watch records a request, and gives it to OnRequest. It returns the fate that OnRequest leaves.
func (s *SSP) watch(q *Request, f fate) fate {
	if s.opts.Record > 0 {
		s.recording.Lock()
		if len(s.recorded) == s.opts.Record {
			s.recorded = s.recorded[1:]
		}
		s.recorded = append(s.recorded, q)
		s.recording.Unlock()
	}
	if s.opts.OnRequest != nil {
		s.opts.OnRequest(q)
	}
	if q.Respond.Code != 0 {
		f.fault, f.status = faultStatus, q.Respond
	}
	return f
}
