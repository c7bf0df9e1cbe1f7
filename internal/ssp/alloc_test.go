//go:build !race

package ssp

import (
	"testing"

	"adbuffer/internal/upstream"
)

// alloc is one request on one exchange, from a pool that allocates nothing.
func (c *client) alloc(ex *upstream.Exchange, r *Request) {
	ex.Times = upstream.Times{Queued: r.Received}
	ex.ReleaseBody()
	ex.Answer.Reset()
	if _, err := c.ssp.Do(r, ex, 0); err != nil {
		c.t.Fatal(err)
	}
}

func TestTheSinglePathAllocatesNothing(t *testing.T) {
	for name, with := range map[string]func(o *Options){
		"defaults": nil,
		"every limit": func(o *Options) {
			o.MaxInFlight = 10
			o.Adaptive.Enabled = true
			o.QPS = QPSOptions{Limit: 1e7}
			o.NoBidBody = NoBidOpenRTB
		},
		"tmax and gzip": func(o *Options) {
			o.RewriteTmax = true
			o.Gzip = GzipOptions{Enabled: true, MinBytes: 1}
		},
	} {
		c := newQuietClient(t, with)
		r := c.withTmax("300")
		ex := upstream.AcquireExchange()
		if n := testing.AllocsPerRun(1000, func() { c.alloc(ex, r) }); n != 0 {
			t.Errorf("%s: %v allocations a request, want none", name, n)
		}
		ex.Release()
	}
}
