package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// Response is a response as it was received.
type Response struct {
	t      testing.TB
	Status int
	Fields []Field
	Body   string
}

type Field struct{ Name, Value string }

// Header returns the value of the field name, in any case; empty if there is none.
func (a *Response) Header(name string) string {
	for _, f := range a.Fields {
		if strings.EqualFold(f.Name, name) {
			return f.Value
		}
	}
	return ""
}

// WantStatus checks the status.
func (a *Response) WantStatus(what string, status int) *Response {
	a.t.Helper()
	testsupport.True(a.t, a.Status == status, "%s: status %d, want %d: %v %s", what, a.Status, status, a.Fields, testsupport.Tail(a.Body, 400))
	return a
}

// WantSource checks X-Adbuffer-Source: "ssp/openx", "proxy/deadline".
func (a *Response) WantSource(source string) *Response {
	a.t.Helper()
	got := a.Header("X-Adbuffer-Source")
	testsupport.True(a.t, got == source, "X-Adbuffer-Source %q, want %q: %d %s", got, source, a.Status, testsupport.Tail(a.Body, 400))
	return a
}

// WantFill checks that the response is a 200 of the SSP.
func (a *Response) WantFill(ssp string) *Response {
	a.t.Helper()
	return a.WantStatus("response of "+ssp, 200).WantSource("ssp/" + ssp)
}

// Error is the JSON body of adbuffer's own errors.
type Error struct {
	Error  string `json:"error"`
	SSP    string `json:"ssp"`
	Detail string `json:"detail"`
}

// ErrorOf reads the body of an error of adbuffer.
func ErrorOf(a *Response) (e Error) {
	a.t.Helper()
	testsupport.Equal(a.t, a.Header("Content-Type"), "application/json", "Content-Type %q")
	if err := json.Unmarshal([]byte(a.Body), &e); err != nil {
		a.t.Errorf("the body is no JSON: %v: %q", err, a.Body)
	}
	return e
}
