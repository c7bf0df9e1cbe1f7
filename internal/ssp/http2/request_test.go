package http2

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// result is the result of a call of Do.
type result struct {
	err      error
	status   int
	length   int
	fields   string
	body     string
	times    exchange.Times
	reused   bool
	served   int
	deadline time.Time
	held     int64 // bytes of the budget that the exchange holds after Do
}

// request is a request that a test sends.
type request struct {
	method  exchange.Method
	target  string
	fields  string
	body    string
	timeout time.Duration
	ctx     context.Context
	budget  *exchange.Budget
	// isolated is Exchange.Isolated.
	isolated bool
}

func get(target string) request { return request{target: target} }

func post(target, body string) request {
	return request{method: exchange.POST, target: target, body: body}
}

// within returns r with a deadline after d.
func (r request) within(d time.Duration) request {
	r.timeout = d
	return r
}

// do runs r on conn.
func (r request) do(conn exchange.Conn) result {
	ex := exchange.AcquireExchange()
	defer ex.Release()
	timeout := r.timeout
	if timeout == 0 {
		timeout = patience
	}
	ex.Request = exchange.Request{
		Method: r.method, Scheme: "https", Authority: []byte("ssp.example"), Target: []byte(r.target),
		Fields: []byte(r.fields), Body: []byte(r.body),
	}
	ex.Context, ex.Budget, ex.Ticket, ex.Isolated = r.ctx, r.budget, testTicket, r.isolated
	ex.Times.Acquired = time.Now()
	ex.Deadline = ex.Times.Acquired.Add(timeout)
	err := conn.Do(ex)
	res := result{err: err, times: ex.Times, reused: ex.Reused, served: ex.Served, deadline: ex.Deadline}
	if r.budget != nil {
		res.held = r.budget.Used()
	}
	if err == nil {
		a := &ex.Response
		res.status, res.length, res.fields, res.body = a.Status, a.ContentLength, string(a.Fields), string(a.Body)
	}
	return res
}

// start runs r in its own goroutine.
func (r request) start(conn exchange.Conn) <-chan result {
	ch := make(chan result, 1)
	go func() { ch <- r.do(conn) }()
	return ch
}

func (p *peer) start(r request) <-chan result { return r.start(p.conn) }

// begin starts r, and returns its stream once the peer has its header.
func (p *peer) begin(r request) (<-chan result, uint32) {
	p.t.Helper()
	done := p.start(r)
	return done, p.request().StreamID
}

// exchange runs r, to which the peer responds with body.
func (p *peer) exchange(r request, body string) {
	p.t.Helper()
	done, id := p.begin(r)
	p.respond(id, body)
	wait(p.t, done).wantBody(p.t, body)
}

// wait returns the result of start.
func wait(t testing.TB, ch <-chan result) result {
	t.Helper()
	select {
	case r := <-ch:
		return r
	case <-time.After(2 * patience):
		t.Fatal("Do did not return")
		panic("unreachable")
	}
}

// wantBody fails the test unless r is a 200 with body.
func (r result) wantBody(t testing.TB, body string) {
	t.Helper()
	if r.err != nil || r.status != 200 || r.body != body {
		t.Fatalf("got %v, status %d, body of %d bytes %.40q; want 200 with %d bytes %.40q", r.err, r.status, len(r.body), r.body, len(body), body)
	}
}

// want describes an expected error.
type want struct {
	outcome  exchange.Outcome
	progress exchange.Progress
	demote   bool
	refuses  bool // refuses HTTP/2
	// overHTTP1 says that the request may be sent again over HTTP/1.
	overHTTP1 bool
	detail    string // a part of the text
}

func (r result) wantError(t testing.TB, w want) {
	t.Helper()
	testsupport.MustTrue(t, r.err != nil, "got status %d, want %v", r.status, w.outcome)
	testsupport.Equal(t, r.held, 0, "%d bytes stay reserved for a response that failed")
	e := exchange.AsError(r.err)
	if e.Outcome != w.outcome || e.Progress != w.progress || e.Demote != w.demote || e.RefusesHTTP2 != w.refuses || e.OverHTTP1 != w.overHTTP1 || !strings.Contains(e.Error(), w.detail) {
		t.Fatalf("got %v %v (progress %d, demote %t, refuses %t, over HTTP/1 %t), want %v (progress %d, demote %t, refuses %t, over HTTP/1 %t) with %q",
			e.Outcome, e, e.Progress, e.Demote, e.RefusesHTTP2, e.OverHTTP1, w.outcome, w.progress, w.demote, w.refuses, w.overHTTP1, w.detail)
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
