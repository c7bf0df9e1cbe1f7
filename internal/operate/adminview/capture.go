package adminview

import (
	"bytes"
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"adbuffer/internal/operate/admin"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/syntax"
)

// captureView is what GET /capture shows.
type captureView struct {
	SSP       string     `json:"ssp"`
	Exchanges []captured `json:"exchanges"`
}

// captured is one exchange with an SSP as GET /capture shows it.
type captured struct {
	ID       string       `json:"id,omitempty"`
	At       time.Time    `json:"at"` // when the request entered the queue
	Outcome  string       `json:"outcome"`
	Error    string       `json:"error,omitempty"`
	Protocol string       `json:"protocol"`
	Reused   bool         `json:"reused"` // the connection had carried a request before
	TotalMs  float64      `json:"total_ms"`
	Pending  float64      `json:"pending_ms"`              // from At until the request acquired a place
	First    float64      `json:"first_byte_ms,omitempty"` // from there until the first byte of the response
	Request  *capturedMsg `json:"request,omitempty"`       // missing if nothing was sent, or the request was hedged
	Response *capturedMsg `json:"response,omitempty"`      // missing if there was no response
}

// capturedMsg is a request or a response, with its secrets hidden.
type capturedMsg struct {
	Method string      `json:"method,omitempty"`
	URL    string      `json:"url,omitempty"`
	Status int         `json:"status,omitempty"`
	Fields [][2]string `json:"fields"`
	// The beginning of the body is in Body if it is text, and otherwise in BodyBinary.
	Body       string `json:"body,omitempty"`
	BodyBinary []byte `json:"body_base64,omitempty"`
	BodyBytes  int    `json:"body_bytes"` // length of the whole body
}

// maxCapturedBody bounds how much of each body is kept.
const maxCapturedBody = 4 << 10

// Capture returns the next n exchanges with an SSP, or fewer if ctx ends first. If a reload removes the
// SSP, the capture does not continue with a later SSP of the same name.
func (v *Views) Capture(ctx context.Context, name string, n int) (any, error) {
	current := v.versions.Current()
	if !current.Config.Admin.Capture {
		return nil, admin.ErrCaptureOff
	}
	part, err := partNamed(current, name)
	if err != nil {
		return nil, err
	}
	c := make(capturing, n)
	stop, ok := part.SSP.Observe(c.note)
	if !ok {
		return nil, admin.ErrCaptureBusy
	}
	defer stop()
	view := captureView{name, []captured{}}
	for len(view.Exchanges) < n {
		select {
		case e := <-c:
			view.Exchanges = append(view.Exchanges, e)
		case <-ctx.Done():
			return view, nil
		}
	}
	return view, nil
}

// capturing is a channel that takes exchanges until its buffer is full.
type capturing chan captured

func (c capturing) note(s *ssp.SSP, r *ssp.Request, ex *exchange.Exchange, o exchange.Outcome, err *exchange.Error) {
	if len(c) == cap(c) {
		return
	}
	select {
	case c <- capturedOf(s.Policy(), r, ex, o, err):
	default:
	}
}

// capturedOf describes an exchange with the SSP that has the given policy.
func capturedOf(policy *header.Policy, req *ssp.Request, ex *exchange.Exchange, o exchange.Outcome, err *exchange.Error) captured {
	t := &ex.Times
	e := captured{
		ID: string(req.Fields.RequestID()), At: t.Queued, Outcome: o.String(), Protocol: ex.Protocol.String(), Reused: ex.Reused,
		TotalMs: milliseconds(t.Done.Sub(t.Queued)),
	}
	if !t.Acquired.IsZero() {
		e.Pending = milliseconds(t.Acquired.Sub(t.Queued))
		if !t.FirstByte.IsZero() {
			e.First = milliseconds(t.FirstByte.Sub(t.Acquired))
		}
	}
	if len(ex.Request.Target) > 0 {
		e.Request = sent(&ex.Request, policy, req.Query)
	}
	if err != nil {
		e.Error = err.Error()
		return e
	}
	e.Response = message(ex.Response.Fields, ex.Response.Body, nil)
	e.Response.Status = ex.Response.Status
	return e
}

// sent describes a request to an SSP. clientQuery is the query of the client's request.
func sent(r *exchange.Request, policy *header.Policy, clientQuery []byte) *capturedMsg {
	m := message(r.Fields, r.Body, policy.Sets)
	m.Method = r.Method.String()
	m.URL = r.Scheme + "://" + string(r.Authority) + targetView(r.Target, clientQuery)
	return m
}

func milliseconds(d time.Duration) float64 { return round(float64(d) / float64(time.Millisecond)) }

// targetView returns the target of a request with possible secrets hidden. The target's query consists of
// the endpoint's own query, of which all values are hidden, and the client's query, of which those values
// are hidden whose names suggest a secret.
func targetView(target, clientQuery []byte) string {
	path, query, ok := strings.Cut(string(target), "?")
	if !ok {
		return path
	}
	own := strings.TrimSuffix(query, string(clientQuery))
	params := strings.Split(query[len(own):], "&")
	for i, p := range params {
		if name, _, has := strings.Cut(p, "="); has && header.NamesSecret(name) {
			params[i] = name + "=" + config.Hidden
		}
	}
	return path + "?" + config.HideQuery(own) + strings.Join(params, "&")
}

// fieldView returns the value of a field with possible secrets hidden. sets is that of message.
func fieldView(name, value string, sets func(name []byte) bool) string {
	if header.NamesSecret(name) {
		return config.Hidden
	}
	if sets != nil && sets([]byte(name)) {
		return config.HideField(name, value)
	}
	return value
}

// message copies fields and body, whose memory belongs to the exchange. sets reports whether the
// configuration sets a field; nil = the configuration sets no field.
func message(fields, body []byte, sets func(name []byte) bool) *capturedMsg {
	m := &capturedMsg{Fields: [][2]string{}, BodyBytes: len(body)}
	for name, value := range syntax.Fields(fields) {
		m.Fields = append(m.Fields, [2]string{string(name), fieldView(string(name), string(value), sets)})
	}
	cut := body[:min(len(body), maxCapturedBody)]
	for n := 1; n < utf8.UTFMax && len(cut) < len(body) && !utf8.RuneStart(body[len(cut)]); n++ {
		cut = cut[:len(cut)-1] // drops an incomplete character
	}
	if utf8.Valid(cut) {
		m.Body = string(cut)
	} else {
		m.BodyBinary = bytes.Clone(body[:min(len(body), maxCapturedBody)])
	}
	return m
}
