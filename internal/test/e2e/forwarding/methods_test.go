package forwarding

import (
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

func TestOtherMethodsGet405WithAllow(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(s.URL()))
	c := ab.Dial()
	for _, method := range []string{"PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "get", "PROPFIND", "X"} {
		want := e2e.Refusal{Status: 405, Reason: "method_not_allowed", Route: "none"}
		a := ab.WantRefusal(method, want, func() *e2e.Response { return c.Do(method, "/fillbuffer", "") })
		testsupport.Equal(t, a.Header("Allow"), "GET, HEAD, POST", "%[2]s: Allow: %[1]q", method)
	}
	c.Get("/fillbuffer").WantFill("openx") // the connection is still good
	e2e.WantRequests(t, s, 1)
}
