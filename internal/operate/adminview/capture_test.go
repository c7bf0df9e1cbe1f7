package adminview

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/operate/admin"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
)

func TestCapturedExchangeHidesOnlySecrets(t *testing.T) {
	ex := exchange.AcquireExchange()
	defer ex.Release()
	now := time.Now()
	ex.Times = exchange.Times{Queued: now, Acquired: now.Add(2 * time.Millisecond), FirstByte: now.Add(12 * time.Millisecond), Done: now.Add(15 * time.Millisecond)}
	ex.Protocol, ex.Reused = exchange.HTTP2, true
	ex.Request = exchange.Request{
		Method: exchange.POST, Scheme: "https", Authority: []byte("rtb.example"), Target: []byte("/bid?v=s3cret&pub=1&api_key=k3y"),
		Fields: []byte("Cookie: id=s3cret\r\nAuthorization: Bearer s3cret\r\nX-Api-Key: s3cret\r\nX-Partner: s3cret\r\nUser-Agent: phone\r\n"), Body: []byte(`{"id":"1"}`),
	}
	ex.Response.Status, ex.Response.Fields = 200, append(ex.Response.Fields, "Set-Cookie: id=s3cret\r\nContent-Type: text/xml\r\n"...)
	ex.Response.Body = append(ex.Response.Body, "<VAST/>"...)

	policy := header.NewPolicy(header.PolicyOptions{Set: []header.NameValue{{Name: "X-Partner", Value: "s3cret"}}})
	fields := header.RequestFields{IDName: "X-Request-Id"}
	testsupport.NoError(t, fields.Scan([]byte("Host: a\r\nX-Request-Id: req-1\r\n\r\n")))
	fields.SetRequestID(true, now)
	c := capturedOf(policy, &ssp.Request{Query: []byte("pub=1&api_key=k3y"), Fields: &fields}, ex, exchange.Fill, nil)
	b, err := json.Marshal(c)
	testsupport.NoError(t, err)
	text := string(b)
	testsupport.True(t, !strings.Contains(text, "s3cret") && !strings.Contains(text, "k3y"), "a secret is in %s", text)
	for _, want := range []string{`"id":"req-1"`, `"pending_ms":2`, `"first_byte_ms":10`, `"total_ms":15`, `"protocol":"http2"`, `["User-Agent","phone"]`, `["X-Partner","(hidden)"]`, `https://rtb.example/bid?v=(hidden)\u0026pub=1\u0026api_key=(hidden)`, `["Cookie","(hidden)"]`, `["Set-Cookie","(hidden)"]`, `"status":200`, `"body_bytes":7`} {
		testsupport.True(t, strings.Contains(text, want), "%s is not in %s", want, text)
	}
}

func TestCapturedBodiesAreBounded(t *testing.T) {
	m := message(nil, []byte(strings.Repeat("é", 4096)), nil)
	if len(m.Body) != 4096 || m.BodyBytes != 8192 || strings.Trim(m.Body, "é") != "" {
		t.Errorf("kept %d bytes of %d, the last %q", len(m.Body), m.BodyBytes, m.Body[len(m.Body)-3:])
	}
	odd := message(nil, []byte("x"+strings.Repeat("é", 4096)), nil) // cut within a character
	if len(odd.Body) != 4095 || strings.Trim(odd.Body[1:], "é") != "" || odd.BodyBinary != nil {
		t.Errorf("a text cut within a character is kept as %q…, %d bytes of binary", odd.Body[:3], len(odd.BodyBinary))
	}
	if bin := message(nil, []byte{0xff, 0x00, 0x80}, nil); bin.Body != "" || len(bin.BodyBinary) != 3 {
		t.Errorf("binary is kept as %q and %v", bin.Body, bin.BodyBinary)
	}
	if bin := message(nil, slices.Repeat([]byte{0xff}, 5000), nil); bin.Body != "" || len(bin.BodyBinary) != 4096 {
		t.Errorf("of 5000 bytes of binary %d are kept", len(bin.BodyBinary))
	}
}

func TestACaptureTakesNoMoreThanItWants(t *testing.T) {
	ex := exchange.AcquireExchange()
	defer ex.Release()
	c := make(capturing, 2)
	for range 5 {
		c.note(new(ssp.SSP), &ssp.Request{Fields: new(header.RequestFields)}, ex, exchange.Deadline, exchange.ErrDeadline)
	}
	if got := <-c; len(c) != 1 || got.Error == "" || got.Response != nil || got.Request != nil {
		t.Errorf("captured %+v and %d more, want two failures without request and response", got, len(c))
	}
}

// A reload removes an SSP while it is captured, and another adds it again.
func TestAnSSPThatWasRemovedAndAddedAgainCanBeCaptured(t *testing.T) {
	ssp := startSSP(t)
	versions := versionsOf(t, oneSSP(ssp, "a"))
	views := New(versions, zap.NewNop())
	stop, _ := versions.Current().SSPs[0].Observe(capturing(nil).note)
	defer stop()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := views.Capture(ended, "a", 1)
	testsupport.True(t, errors.Is(err, admin.ErrCaptureBusy), "a second capture: %v", err)
	for _, name := range []string{"b", "a"} {
		replace(t, versions, oneSSP(ssp, name))
	}
	for range 2 {
		_, err = views.Capture(ended, "a", 1)
		testsupport.NoError(t, err)
	}
	_, err = views.Capture(ended, "b", 1)
	testsupport.True(t, errors.As(err, new(*admin.UnknownError)) && strings.HasSuffix(err.Error(), "there are a"), "a capture of a removed SSP: %v", err)
}
