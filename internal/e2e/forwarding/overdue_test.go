package forwarding

import (
	"strings"
	"sync"
	"testing"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
)

// Before, requests behind a response that did not come waited on its pipelined connection until
// their deadlines, although the pool could have opened another one.
func TestNoRequestIsSentBehindAnOverdueResponse(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	s := e2e.StartSSP(t, sspsim.Options{OnRequest: func(r *sspsim.Request) {
		if strings.Contains(r.Target, "hang") {
			<-gate
		}
	}})
	t.Cleanup(open) // before the SSP closes
	ab := e2e.Start(t, "deadline: {default: 1s, max: 30s}\n"+e2e.Single(s.URL(), "protocol: http1-pipelined", "pool: {linger: 1m}"))
	c := ab.Dial()
	patient := "X-Adbuffer-Timeout-Ms: 20000"
	c.Get("/fillbuffer", patient).WantFill("openx") // from now on the connection pipelines
	c.Get("/fillbuffer?hang").WantStatus("a request that hangs", 504)
	for range 5 {
		c.Get("/fillbuffer", patient).WantFill("openx")
	}
	ab.WantMetric(2, "adbuffer_pool_connections_opened_total", "ssp=openx", "protocol=http1-pipelined")

	// The connection serves again when the response has come.
	open()
	ab.AwaitMetric(0, "adbuffer_pool_places_in_use", "ssp=openx")
	for range 5 {
		c.Get("/fillbuffer", patient).WantFill("openx")
	}
	ab.WantMetric(2, "adbuffer_pool_connections_opened_total", "ssp=openx", "protocol=http1-pipelined")
}
