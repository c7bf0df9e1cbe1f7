package sspsim

import (
	"bytes"
	"crypto/tls"
	"strings"
	"time"

	"adbuffer/internal/wire/openrtb"
)

// Request is one request as it arrived.
type Request struct {
	Time   time.Time // when it was complete
	Conn   uint64    // the connection of the request; 1 is the SSP's first
	Stream uint32    // the HTTP/2 stream; 0 in HTTP/1

	Method   string
	Target   string // raw; in HTTP/2 the :path
	Protocol string // HTTP/1.0, HTTP/1.1 or HTTP/2.0
	// Header fields in the order and the spelling of the wire, with HTTP/2's
	// pseudo-header fields in front.
	Header  []Field
	Body    []byte // without framing
	Trailer []Field

	// Head holds the raw bytes of an HTTP/1 message head, from the method to the empty line; nil in
	// HTTP/2.
	Head []byte
	// TLS is the state of the connection; nil without TLS.
	TLS *tls.ConnectionState

	// Respond is the response that OnRequest chooses for this request. Code 0 leaves the choice to the
	// behaviour, and the code NoResponse is no response.
	Respond Status

	length    int64  // of Content-Length; -1 if absent
	requestID string // the first X-Request-Id
}

// NoResponse is the code with which OnRequest ends a request without a response, as nginx does: by Faults.Reset
// in HTTP/1, and by Faults.ResetStream in HTTP/2.
const NoResponse = 444

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

func (r *Request) cb() string { return r.query("cb") }

// query returns the raw value of the first query parameter of the name, or "" without one.
func (r *Request) query(name string) string {
	_, query, _ := strings.Cut(r.Target, "?")
	for pair := range strings.SplitSeq(query, "&") {
		if key, value, ok := strings.Cut(pair, "="); ok && key == name {
			return value
		}
	}
	return ""
}

var bidIDFinder = openrtb.NewFinder(openrtb.Path{"id"})

// bidID returns the content of the first top-level string "id" of an OpenRTB body, with its escapes. It
// returns nil without one, or if a header field must not have that content.
func (r *Request) bidID() []byte {
	start, end, _ := bidIDFinder.Find(r.Body)
	id := r.Body[start:end]
	if len(id) < 2 || id[0] != '"' || bytes.IndexByte(id, 0x7f) >= 0 {
		return nil
	}
	return id[1 : len(id)-1]
}

// equalFold compares without regard to the case of ASCII letters. Equal lengths exclude the letters beyond
// ASCII that fold to ASCII.
func equalFold(a, b string) bool { return len(a) == len(b) && strings.EqualFold(a, b) }

// Requests returns the last Options.Record requests, the oldest first.
func (s *SSP) Requests() []*Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Request{}, s.recorded...)
}

// watching reports whether requests are recorded or observed. If not, HTTP/1 reuses its Request.
func (s *SSP) watching() bool { return s.opts.Record > 0 || s.opts.OnRequest != nil }

// watch records a request, and gives it to OnRequest. It returns the fate that OnRequest leaves.
func (s *SSP) watch(q *Request, f fate) fate {
	if s.opts.Record > 0 {
		s.mu.Lock()
		if len(s.recorded) == s.opts.Record {
			s.recorded = s.recorded[1:]
		}
		s.recorded = append(s.recorded, q)
		s.mu.Unlock()
	}
	if s.opts.OnRequest != nil {
		s.opts.OnRequest(q)
	}
	switch {
	case q.Respond.Code == NoResponse && q.Stream == 0:
		f.fault = faultReset
	case q.Respond.Code == NoResponse:
		f.fault = faultResetStream
	case q.Respond.Code != 0:
		f.fault, f.status = faultStatus, q.Respond
	}
	return f
}
