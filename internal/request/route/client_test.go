package route

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
)

func TestMain(m *testing.M) {
	testsupport.Main(m)
}

// client is a request in its own memory, as in the proxy.
type client struct {
	ssp.Request
	head, query, body []byte
	fields            header.RequestFields
	identity          header.Identity
}

const deadline = 300 * ms

func newClient(t testing.TB, method exchange.Method, query, body string, lines ...string) *client {
	t.Helper()
	c := new(client)
	c.set(t, method, query, body, lines...)
	return c
}

// set changes c to another request, in the same memory.
func (c *client) set(t testing.TB, method exchange.Method, query, body string, lines ...string) {
	t.Helper()
	c.head = append(c.head[:0], "Host: adbuffer.test\r\n"...)
	for _, l := range lines {
		c.head = append(append(c.head, l...), "\r\n"...)
	}
	c.head = append(c.head, "\r\n"...)
	testsupport.NoError(t, c.fields.Scan(c.head))
	c.query = append(c.query[:0], query...)
	c.body = append(c.body[:0], body...)
	c.identity.Resolve(&c.fields, netip.MustParseAddr("192.0.2.1"), true, nil, false)
	now := time.Now()
	c.Request = ssp.Request{
		Method: method, Query: c.query, Fields: &c.fields, Identity: &c.identity, Body: c.body,
		Received: now, Deadline: now.Add(deadline), Budget: exchange.NewBudget(1 << 20), Held: int64(len(c.body)),
	}
}

// poison overwrites the request's memory, like the proxy and fasthttp after the handler has
// returned.
func (c *client) poison() {
	for _, b := range [][]byte{c.head, c.query, c.body} {
		b = b[:cap(b)]
		for i := range b {
			b[i] = '!'
		}
	}
	c.fields.Reset()
	c.identity = header.Identity{}
	c.Request = ssp.Request{}
}

func get(t testing.TB) *client { return newClient(t, exchange.GET, "pub=1", "") }

// newProcess returns a process without a limit, for a test in a bubble. The test fails if a leg
// panics or still runs at the end.
func newProcess(t testing.TB) *Process {
	p := &Process{InFlight: new(ssp.InFlight), Panicked: func(v any, stack []byte) { t.Errorf("a leg panicked: %v\n%s", v, stack) }}
	t.Cleanup(func() {
		synctest.Wait()
		testsupport.Equal(t, p.InFlight.Now(), 0, "%d legs are still in flight")
	})
	return p
}

// newRoute returns a route to all of ssps.
func newRoute(m Mode, ssps ...*fakeSSP) *Route {
	rt := &Route{Name: "r", Mode: m}
	for _, s := range ssps {
		rt.Targets = append(rt.Targets, Target{SSP: s.SSP, Weight: 1})
	}
	return rt.ready()
}

// ready prepares a route like its table.
func (rt *Route) ready() *Route {
	NewTable([]*Route{rt})
	return rt
}

// ended describes a result in text.
func ended(res *Result) string {
	var s strings.Builder
	s.WriteString(res.Outcome.String())
	if res.SSP != nil {
		s.WriteString(" of " + res.SSP.Name())
	}
	if res.Err != nil {
		if res.Err.Outcome != res.Outcome {
			s.WriteString(", but the error is " + res.Err.Outcome.String())
		}
		return s.String()
	}
	fmt.Fprintf(&s, ": %d", res.Status())
	if b := res.Exchange.Response.Body; len(b) > 0 {
		s.WriteString(" " + string(b))
	}
	return s.String()
}

// ask sends r to a route, or only to chosen, and checks the result.
func ask(t testing.TB, rt *Route, r *client, chosen *Target, result string) {
	t.Helper()
	res := rt.Do(&r.Request, chosen, newProcess(t))
	want(t, "result", ended(&res), result)
	res.Release()
}

// legsOf describes how the legs of a result ended, in text.
func legsOf(res *Result) string {
	var all []string
	for _, l := range res.Legs() {
		all = append(all, fmt.Sprintf("%s %v %v", l.SSP, l.Outcome, l.Took))
	}
	return strings.Join(all, ", ")
}

func want(t testing.TB, what, got, want string) {
	t.Helper()
	testsupport.True(t, got == want, "%s:\n got %s\nwant %s", what, got, want)
}

// wantEmpty checks, in a testsupport.Bubble, that all bytes of the budget are released once every
// leg has ended.
func wantEmpty(t testing.TB, b *exchange.Budget) {
	t.Helper()
	synctest.Wait()
	testsupport.Equal(t, b.Used(), 0, "%d bytes of the budget are still held")
}
