package proxy_test

import (
	"strings"
	"testing"

	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

// A panic fails only its own request, and closes its connection; fasthttp alone would end the process.
func TestAPanicGets500IsCountedAndLoggedAndClosesNothing(t *testing.T) {
	m := newModeProxy(t, route.Single, nil, bidder{name: "a", broken: true})
	for range 2 {
		c := m.dialRaw()
		c.send(0, post(5)+"hello")
		res, body := c.response("POST")
		m.want(res, 500, "proxy/internal")
		testsupport.True(t, strings.Contains(body, `"detail":"adbuffer failed; see its log; see the runbook, entry internal"`) && res.Close, "%v %s, want a 500 that closes", res.Header, body)
		c.wantEnd()
	}
	m.await(0, "adbuffer_buffered_bytes", "")
	m.await(0, inFlight, "")
	testsupport.Equal(t, m.series("adbuffer_panics_total", ""), 2, "%v panics counted")
	testsupport.Equal(t, m.series("adbuffer_requests_total", "internal"), 2, "%v requests of the route ended as internal")
	logged := m.logs.FilterMessage("a request made the handler panic").All()
	testsupport.MustEqual(t, len(logged), 2, "%d panics are logged")
	testsupport.True(t, strings.Contains(logged[0].ContextMap()["stack"].(string), "route"), "the log has %v, want the stack", logged[0])
}
