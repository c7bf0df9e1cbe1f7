package sspsim

import (
	"cmp"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Behaviour says how an SSP responds. The zero value is a healthy SSP. It sends a small OpenRTB bid
// with status 200 at once, and keeps the connection open. It can be changed while the SSP runs. A
// change applies to the requests that arrive after it, also on open connections.
//
// In JSON, durations are strings with a unit ("80ms") and absent keys keep
// their zero value.
type Behaviour struct {
	Latency     Latency     `json:"latency"`
	Response    Response    `json:"response"`
	Connections Connections `json:"connections"`
	Faults      Faults      `json:"faults"`
}

// Chance says how often an event happens. The zero value is never. With both fields set, either is
// enough.
type Chance struct {
	// Share of the events, 0 to 1, drawn from the SSP's seeded generator.
	Share float64 `json:"share"`
	// Every is N for every Nth event of the SSP: 1 is always, 0 is off. The
	// count spans all connections and starts again when the behaviour changes.
	Every int `json:"every"`
}

// Always is the Chance of every event.
var Always = Chance{Every: 1}

// Every returns the Chance of every nth event: event n is the first.
func Every(n int) Chance { return Chance{Every: n} }

// Share returns the Chance of a share of the events, 0 to 1.
func Share(share float64) Chance { return Chance{Share: share} }

// Kind is the kind of a response's body.
type Kind string

// The kinds of body.
const (
	OpenRTB Kind = "openrtb" // an OpenRTB bid response; the default
	VAST    Kind = "vast"    // a VAST 4.2 document with one inline ad
	Raw     Kind = "raw"     // filler bytes, exactly as many as Size says
	// EmptyGzip is a gzip body of empty blocks: it decodes to nothing. Headers may name the coding.
	EmptyGzip Kind = "empty_gzip"
)

// NoBidForm is the form of a response without a bid.
type NoBidForm string

// The forms of a no-bid.
const (
	NoBid204      NoBidForm = "204"      // status 204; the default
	NoBidEmpty    NoBidForm = "empty"    // status 200, no body
	NoBidDocument NoBidForm = "document" // status 200, a document of the Kind without an ad; empty for Raw
)

// Field is one header field. Name is spelled as on the wire.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Response shapes the responses to requests that no fault hits.
type Response struct {
	// NoBid is how often a response carries no bid, in the form NoBidForm.
	NoBid     Chance    `json:"no_bid"`
	NoBidForm NoBidForm `json:"no_bid_form"`
	// FillBy names query parameters, coarse to fine. A request gets a bid with the probability that FillRate returns for
	// its values of them, unless NoBid prevents it. Empty: the query does not matter.
	FillBy []string `json:"fill_by"`

	// Kind of body; "" is OpenRTB. The body's id is the request's own: the id
	// of its OpenRTB body, else its cb query parameter, else its X-Request-Id,
	// else "0".
	Kind Kind `json:"kind"`
	// Size of the body. Padding brings a document to this size. A document is never cut: an empty
	// document may be larger than this size.
	Size Size `json:"size"`
	// Echo copies values of the request to its response, also to that of a fault: X-Request-Id
	// unchanged, X-Echo-Cb with the raw cb query parameter, X-Echo-Id with the id of its OpenRTB
	// body. A Raw body starts with the id.
	Echo bool `json:"echo"`
	// Headers are added to every response, also to those of faults, in this order.
	Headers []Field `json:"headers"`

	// HTTP10 responds with an HTTP/1.0 status line and closes. HTTP/1 only.
	HTTP10 Chance `json:"http10"`
	// ReadToEOF sends a body that ends with the connection. HTTP/1 only.
	ReadToEOF Chance `json:"read_to_eof"`
	// Chunked frames the body in two chunks or more. Not to HTTP/1.0 requests,
	// and HTTP/1 only.
	Chunked Chance `json:"chunked"`
	// Trailers sends the field X-Sim-Trailer after the body, which is chunked
	// in HTTP/1.
	Trailers Chance `json:"trailers"`
	// Interim sends a 103 (Early Hints) before the response. Not to HTTP/1.0
	// requests.
	Interim Chance `json:"interim"`
	// Cookies adds two Set-Cookie fields.
	Cookies Chance `json:"cookies"`
}

// Connections are the rules of an SSP for its connections.
type Connections struct {
	// MaxRequests closes a connection after this many requests; 0 is no limit.
	MaxRequests int `json:"max_requests"`
	// Announce sends Connection: close on the last response, or GOAWAY in HTTP/2, before a close
	// that MaxRequests or IdleTimeout causes. An idle HTTP/1 connection has no such message.
	Announce bool `json:"announce"`
	// IdleTimeout closes a connection that has had no request in flight for this long; 0 disables
	// it.
	IdleTimeout Duration `json:"idle_timeout"`
	// MaxStreams is SETTINGS_MAX_CONCURRENT_STREAMS. 0 announces 250, -1 announces 0, which stops
	// new streams. A stream beyond the limit that the peer has acknowledged is refused. HTTP/2
	// only.
	MaxStreams int `json:"max_streams"`
	// MaxField bounds the bytes of a request's header field, name and value together. A longer field ends
	// the connection at once, with a GOAWAY of the code ENHANCE_YOUR_CALM and with all its streams, as it
	// does with nginx. 0 is no limit; only without a limit, SETTINGS_MAX_HEADER_LIST_SIZE is announced.
	// HTTP/2 only.
	MaxField int `json:"max_field"`
	// PipelineOverlap measures the latency of a pipelined request from the arrival of its bytes, so that
	// the latencies of requests that arrive together run in parallel. Otherwise the SSP begins a request
	// of an HTTP/1 connection only after its response to the previous request.
	PipelineOverlap bool `json:"pipeline_overlap"`
	// HTTP1Only is how often a TLS connection negotiates HTTP/1.1 although the
	// SSP speaks HTTP/2 too, as behind mixed load balancers. Only with
	// Protocol TLSAuto.
	HTTP1Only Chance `json:"http1_only"`
}

// streamLimit is the value of SETTINGS_MAX_CONCURRENT_STREAMS.
func (c Connections) streamLimit() uint32 { return uint32(max(0, cmp.Or(c.MaxStreams, 250))) }

// InvalidError lists all errors of a behaviour or of options, each with its path, the value and the
// rule.
type InvalidError struct {
	Mistakes []string
}

// Error joins the errors with "; ".
func (e *InvalidError) Error() string { return strings.Join(e.Mistakes, "; ") }

func (e *InvalidError) add(path, format string, args ...any) {
	e.Mistakes = append(e.Mistakes, path+": "+fmt.Sprintf(format, args...))
}

// orNil returns nil if e has no errors.
func (e *InvalidError) orNil() error {
	if len(e.Mistakes) == 0 {
		return nil
	}
	return e
}

// within adds an error if v is not from low to high.
func within[T int | float64 | Duration](e *InvalidError, path string, v, low, high T) {
	if isWithin := v >= low && v <= high; !isWithin { // a NaN is not
		e.add(path, "%v is not within %v to %v", v, low, high)
	}
}

// Validate returns an *InvalidError that lists all values out of range, or nil.
func (b Behaviour) Validate() error {
	var e InvalidError
	b.check(&e, "")
	return e.orNil()
}

func (b Behaviour) check(e *InvalidError, path string) {
	b.Latency.check(e, path+"latency")
	b.Response.check(e, path+"response")
	within(e, path+"connections.max_requests", b.Connections.MaxRequests, 0, 1<<30)
	within(e, path+"connections.idle_timeout", b.Connections.IdleTimeout, 0, Duration(time.Hour))
	within(e, path+"connections.max_streams", b.Connections.MaxStreams, -1, maxOpenStreams)
	within(e, path+"connections.max_field", b.Connections.MaxField, 0, maxHeaderList)
	b.Faults.check(e, path+"faults")
	eachChance(reflect.ValueOf(b), "", func(key string, chance Chance) {
		within(e, path+key+".share", chance.Share, 0, 1)
		within(e, path+key+".every", chance.Every, 0, 1<<30)
	})
}

// clone returns a copy that shares no memory with b. Empty lists are nil in it.
func (b Behaviour) clone() Behaviour {
	b.Response.Headers = append([]Field(nil), b.Response.Headers...)
	b.Response.FillBy = append([]string(nil), b.Response.FillBy...)
	b.Faults.Malformed.Kinds = append([]Malformation(nil), b.Faults.Malformed.Kinds...)
	return b
}

func (a Response) check(e *InvalidError, path string) {
	switch a.NoBidForm {
	case "", NoBid204, NoBidEmpty, NoBidDocument:
	default:
		e.add(path+".no_bid_form", "%q is not one of 204, empty, document", a.NoBidForm)
	}
	switch a.Kind {
	case "", OpenRTB, VAST, Raw, EmptyGzip:
	default:
		e.add(path+".kind", "%q is not one of openrtb, vast, raw, empty_gzip", a.Kind)
	}
	a.Size.check(e, path+".size")
	for i, f := range a.Headers {
		if !httpguts.ValidHeaderFieldName(f.Name) || !httpguts.ValidHeaderFieldValue(f.Value) {
			e.add(fmt.Sprintf("%s.headers[%d]", path, i), "%q: %q is not a header field", f.Name, f.Value)
		}
		switch http.CanonicalHeaderKey(f.Name) {
		case "Content-Length", "Transfer-Encoding":
			e.add(fmt.Sprintf("%s.headers[%d]", path, i), "%s is the simulator's own; see faults.malformed", f.Name)
		}
	}
}
