package forwarding

import (
	"testing"

	"adbuffer/internal/test/e2e"
)

func TestRequestsThatNoRouteMatchesGet404(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(s.URL()))
	noRoute := e2e.Refusal{Status: 404, Reason: "no_route", Route: "none", Names: []string{"routes[].match"}}
	c := ab.Dial()
	for _, path := range []string{
		"/", "/fillbuffe", "/fillbuffer/", "/fillbuffer/openx", "/fillbufferx", "//fillbuffer", "/FILLBUFFER", "/%66illbuffer",
		"/x/../fillbuffer", "/./fillbuffer", "/fillbuffer%3fx",
	} {
		ab.WantRefusal(path, noRoute, func() *e2e.Response { return c.Get(path) })
	}
	c.Get("/fillbuffer").WantFill("openx") // the connection is still good
	e2e.WantRequests(t, s, 1)
}
