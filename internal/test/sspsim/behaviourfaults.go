package sspsim

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"golang.org/x/net/http2"
)

// Faults are the ways in which an SSP fails. Refuse and BlackHole are states. Hang is drawn once
// for each connection, and all other faults once for each request. If several hit one request, only
// the first in the order of the fields happens.
type Faults struct {
	// Refuse closes the listener while set: dials get ECONNREFUSED. The SSP keeps the port. Open
	// connections are not affected.
	Refuse bool `json:"refuse"`
	// BlackHole lets no dial finish while set: the accept queue is full and SYNs are dropped. Open
	// connections are not affected. Refuse has precedence.
	BlackHole bool `json:"black_hole"`
	// Hang accepts a connection and never responds on it, not even to the TLS handshake. It reads
	// and discards what arrives.
	Hang Chance `json:"hang"`

	// Stall reads a request and never responds to it. In HTTP/2 the other streams
	// of the connection are not affected.
	Stall Chance `json:"stall"`
	// Reset sends a TCP RST instead of the response.
	Reset Chance `json:"reset"`
	// CutHead closes the connection in the middle of the response's message head.
	CutHead Chance `json:"cut_head"`
	// CutBody closes the connection in the middle of the response's body.
	CutBody Chance `json:"cut_body"`
	// RefuseStream resets the request's stream with REFUSED_STREAM. HTTP/2 only.
	RefuseStream Chance      `json:"refuse_stream"`
	ResetStream  ResetStream `json:"reset_stream"`
	GoAway       GoAway      `json:"goaway"`
	Status       Status      `json:"status"`
	Drip         Drip        `json:"drip"`
	// Leftover sends Poison directly after the body: a whole response in HTTP/1, a DATA frame on
	// the ended stream in HTTP/2.
	Leftover      Chance    `json:"leftover"`
	OversizedHead Oversized `json:"oversized_head"`
	OversizedBody Oversized `json:"oversized_body"`
	Malformed     Malformed `json:"malformed"`
}

// Poison is the body of the unsolicited responses of Leftover. No client may ever receive it.
const Poison = "a response to no request"

// ResetStream resets the request's stream. HTTP/2 only.
type ResetStream struct {
	Chance
	// Code is the name of RFC 9113, section 7 ("CANCEL"); "" is INTERNAL_ERROR.
	Code string `json:"code"`
	// AfterHead first sends the response's message head and half of its body.
	AfterHead bool `json:"after_head"`
}

// GoAway sends GOAWAY. Streams up to its last stream ID get responses, then the connection closes.
// Later streams are ignored. HTTP/2 only.
type GoAway struct {
	Chance
	// Code is the name of RFC 9113, section 7; "" is NO_ERROR.
	Code string `json:"code"`
	// Exclude sets the last stream ID to the stream before this request's, so this request was
	// provably not processed.
	Exclude bool `json:"exclude"`
}

// Status responds with this status and a short body.
type Status struct {
	Chance
	// Code is 200 to 599; 0 is 503.
	Code int `json:"code"`
	// RetryAfter adds Retry-After, rounded up to whole seconds; 0 leaves it out.
	RetryAfter Duration `json:"retry_after"`
	// RetryAfterDate writes it as an HTTP date.
	RetryAfterDate bool `json:"retry_after_date"`
}

// Drip sends the body in small pieces with pauses between them.
type Drip struct {
	Chance
	Bytes int      `json:"bytes"` // a piece; 0 is 1
	Pause Duration `json:"pause"` // between two pieces; 0 is 10ms
}

// Oversized makes a message head or a body of Bytes bytes.
type Oversized struct {
	Chance
	// Bytes, at most 64 MiB (a message head: 16 MiB); 0 is 64 KiB for a message head, 4 MiB for a
	// body.
	Bytes int `json:"bytes"`
}

// Malformation is one way to violate HTTP.
type Malformation string

// The malformations. Names that start with H2 are for HTTP/2, all other names for HTTP/1.
const (
	ObsFold        Malformation = "obs-fold"          // a field value continues on the next line
	BareLF         Malformation = "bare-lf"           // lines of the message head end in LF alone
	LengthAndTE    Malformation = "cl-te"             // Content-Length beside Transfer-Encoding: chunked
	TwoLengths     Malformation = "two-lengths"       // two Content-Length fields that differ
	BadChunk       Malformation = "bad-chunk"         // a chunk size that is not hexadecimal
	BadStatusLine  Malformation = "bad-status-line"   // no status code
	NulInValue     Malformation = "nul"               // a NUL in a field value
	SpaceInName    Malformation = "space-in-name"     // a space before the colon
	H2NoStatus     Malformation = "h2-no-status"      // no :status
	H2Uppercase    Malformation = "h2-uppercase"      // an upper-case field name
	H2Connection   Malformation = "h2-connection"     // a connection-specific field
	H2WrongLength  Malformation = "h2-wrong-length"   // content-length is one more than the DATA
	H2PseudoBehind Malformation = "h2-pseudo-behind"  // :status after a regular field
	H2DataFirst    Malformation = "h2-data-first"     // DATA before HEADERS
	H2Garbage      Malformation = "h2-not-http2"      // an HTTP/1.1 response instead of frames
	H2SettingsBad  Malformation = "h2-settings-wrong" // SETTINGS_ENABLE_PUSH 2
)

var http1Malformations = []Malformation{ObsFold, BareLF, LengthAndTE, TwoLengths, BadChunk,
	BadStatusLine, NulInValue, SpaceInName}

var http2Malformations = []Malformation{H2NoStatus, H2Uppercase, H2Connection, H2WrongLength,
	H2PseudoBehind, H2DataFirst, H2Garbage, H2SettingsBad}

// Malformed violates a rule of HTTP in the response. The connection stays open: the client must
// notice the violation.
type Malformed struct {
	Chance
	// Kinds to draw from; empty draws from all kinds of the connection's protocol.
	Kinds []Malformation `json:"kinds"`
}

// errCodes are the error codes of HTTP/2 by name.
var errCodes = func() map[string]http2.ErrCode {
	m := map[string]http2.ErrCode{}
	for code := http2.ErrCodeNo; code <= http2.ErrCodeHTTP11Required; code++ {
		m[code.String()] = code
	}
	return m
}()

func (f Faults) check(e *InvalidError, path string) {
	for _, code := range []struct{ key, name string }{{"reset_stream", f.ResetStream.Code}, {"goaway", f.GoAway.Code}} {
		if _, ok := errCodes[code.name]; !ok && code.name != "" {
			e.add(path+"."+code.key+".code", "%q is not an error code of HTTP/2, such as CANCEL", code.name)
		}
	}
	if f.Status.Code != 0 {
		within(e, path+".status.code", f.Status.Code, 200, 599)
	}
	within(e, path+".status.retry_after", f.Status.RetryAfter, 0, Duration(24*time.Hour))
	within(e, path+".drip.bytes", f.Drip.Bytes, 0, maxBodyBytes)
	within(e, path+".drip.pause", f.Drip.Pause, 0, maxLatency)
	within(e, path+".oversized_head.bytes", f.OversizedHead.Bytes, 0, 16<<20)
	within(e, path+".oversized_body.bytes", f.OversizedBody.Bytes, 0, maxBodyBytes)
	for i, kind := range f.Malformed.Kinds {
		if !slices.Contains(http1Malformations, kind) && !slices.Contains(http2Malformations, kind) {
			e.add(fmt.Sprintf("%s.malformed.kinds[%d]", path, i), "%q is not a malformation; HTTP/1 has %v, HTTP/2 has %v",
				kind, http1Malformations, http2Malformations)
		}
	}
}

// retryAfter returns the value of Retry-After, "" for none.
func (s Status) retryAfter(now time.Time) string {
	if s.RetryAfter == 0 {
		return ""
	}
	after := time.Duration(s.RetryAfter)
	if s.RetryAfterDate {
		return now.Add(after).UTC().Format(http.TimeFormat)
	}
	return strconv.Itoa(int(math.Ceil(after.Seconds())))
}
