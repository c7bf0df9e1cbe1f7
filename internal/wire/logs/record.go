// Package logs reports single requests to operators: in lines of the access log, to operators who watch requests
// live, and in the list of the last failures. A request costs nothing here unless one of these outputs wants it.
//
// The package also bounds how many log lines clients, SSPs and local processes can cause, and how many lines may wait
// to be written.
package logs

import (
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"adbuffer/internal/wire/exchange"
)

// Record describes one request that ended. It holds copies only, so it may outlive the request.
type Record struct {
	At     time.Time // when the request ended
	Reason Reason    // why the access log has the request
	ID     string    // empty for none
	Method string
	Path   string // without the query
	Route  string // NoRoute if no route matched
	Client string // the client's address, masked by the route's privacy settings; empty for a Unix socket
	// Status is the status of the response. It is 0 if the client got no response, because it had disconnected or its
	// stream was reset.
	Status   int
	Outcome  exchange.Outcome
	Source   string // X-Adbuffer-Source
	SSP      string // the SSP; empty if there was none, or more than one
	Exchange exchange.Summary
	BytesIn  int // of the request's body
	BytesOut int // of the response's body
	Total    time.Duration
	Error    string
	// Unreadable is the reason why OpenRTB conditions could not examine the body, or edits not change it; empty if they could.
	Unreadable string
	// Deadline is how long the request may take; 0 if that was not determined. DeadlineFrom is the field or setting that
	// it follows from, and IgnoredTmax is the reason why that is not the body's tmax.
	Deadline                  time.Duration
	DeadlineFrom, IgnoredTmax string
	Legs                      []Leg // in modes that may ask several SSPs; otherwise nil
}

// Leg is one SSP's part in a request.
type Leg struct {
	SSP string
	// Outcome is Cancelled if the leg was abandoned.
	Outcome exchange.Outcome
	// Exchange is the zero Summary if the SSP got no request, or the leg was abandoned.
	Exchange exchange.Summary
	// Took is the time until the leg ended, or was abandoned.
	Took time.Duration
	// Failed says that adbuffer or the SSP is to blame for the outcome.
	Failed bool
	// Err says why there is no response; nil if there is one, or if the leg was abandoned.
	Err *exchange.Error
}

// Reason is the reason for a line in the access log.
type Reason uint8

// The reasons. A request that failed or was slow is Failure or Slow, even if the sample includes
// it.
const (
	NoReason Reason = iota
	Sampled
	Failure
	Slow
)

// String returns the word that the access log uses, empty for NoReason.
func (r Reason) String() string { return [...]string{"", "sample", "failure", "slow"}[r] }

// maxText bounds each text of a record that may come from a client or an SSP.
const maxText = 512

// Visible returns the text of b with each byte that is not a visible ASCII character
// percent-encoded, cut to 512 bytes. So no bytes of a client can begin a new line or move the
// cursor of a terminal.
func Visible(b []byte) string {
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, min(len(b), maxText))
	for _, c := range b {
		if len(out) >= maxText {
			return string(out) + "..."
		}
		if c > ' ' && c < 0x7f {
			out = append(out, c)
		} else {
			out = append(out, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(out)
}

// Cut returns the text of an error, cut to 512 bytes.
func Cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "..."
}

// Fields returns the fields of r in their order. Their names and units are a contract, which
// deploy/logs/README.md lists. An event that did not happen has no field.
func (r *Record) Fields() []zap.Field {
	f := make(fields, 0, 30)
	f.text("id", r.ID)
	f.text("method", r.Method)
	f.text("path", r.Path)
	f.text("route", r.Route)
	f.text("client", r.Client)
	f = append(f, zap.Int("status", r.Status), zap.Stringer("outcome", r.Outcome))
	f.text("source", r.Source)
	f.text("ssp", r.SSP)
	if r.Legs == nil {
		f.exchange(&r.Exchange)
	}
	f = append(f, zap.Int("bytes_in", r.BytesIn), zap.Int("bytes_out", r.BytesOut), zap.Float64("total_ms", milliseconds(r.Total)))
	if r.DeadlineFrom != "" {
		f.ms("deadline_ms", r.Deadline)
	}
	f.text("deadline_from", r.DeadlineFrom)
	f.text("tmax_ignored", r.IgnoredTmax)
	f.text("logged_for", r.Reason.String())
	f.text("openrtb_unreadable", r.Unreadable)
	f.text("error", r.Error)
	if r.Legs != nil {
		f = append(f, zap.ObjectValues("legs", r.Legs))
	}
	return f
}

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (l *Leg) MarshalLogObject(e zapcore.ObjectEncoder) error {
	f := make(fields, 0, 15)
	f.text("ssp", l.SSP)
	f = append(f, zap.Stringer("outcome", l.Outcome))
	if l.Outcome.HasResponse() {
		f = append(f, zap.Int("status", l.Exchange.Status))
	}
	f.exchange(&l.Exchange)
	f = append(f, zap.Float64("total_ms", milliseconds(l.Took)))
	if l.Failed {
		f = append(f, zap.Bool("failed", true))
		if l.Err != nil {
			f.text("error", Cut(l.Err.Text()))
		}
	}
	for i := range f {
		f[i].AddTo(e)
	}
	return nil
}

type fields []zap.Field

// text adds a text that is not empty.
func (f *fields) text(name, value string) {
	if value != "" {
		*f = append(*f, zap.String(name, value))
	}
}

func (f *fields) ms(name string, d time.Duration) {
	*f = append(*f, zap.Float64(name, milliseconds(d)))
}

// exchange adds the facts of the exchange with an SSP.
func (f *fields) exchange(x *exchange.Summary) {
	f.text("endpoint", x.Endpoint)
	if x.Peer.IsValid() {
		f.text("peer", x.Peer.String())
	}
	if x.Protocol != exchange.Unknown {
		*f = append(*f, zap.Stringer("protocol", x.Protocol), zap.Bool("reused", x.Reused))
	}
	*f = append(*f, zap.Int("attempts", x.Attempts))
	t := &x.Times
	if t.Acquired.IsZero() {
		return
	}
	f.ms("pending_ms", t.Acquired.Sub(t.Queued))
	if t.TCP > 0 {
		f.ms("dial_ms", t.DNS+t.TCP)
	}
	if t.TLS > 0 {
		f.ms("tls_ms", t.TLS)
	}
	if !t.FirstByte.IsZero() {
		f.ms("ttfb_ms", t.FirstByte.Sub(t.Acquired))
	}
}

// milliseconds is d in milliseconds, with three decimals.
func milliseconds(d time.Duration) float64 { return float64(max(0, d).Microseconds()) / 1000 }
