package route

import (
	"testing"
	"time"

	"adbuffer/internal/ssp"
	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

func TestSingleAsksTheFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		reply reply
		want  string
	}{
		"fill":     {fills(10*ms, "ad"), "fill of a: 200 ad"},
		"no_bid":   {responses(10*ms, 204), "no_bid of a: 204"},
		"document": {fills(10*ms, "<VAST/>"), "no_bid of a: 200 <VAST/>"}, // forwarded unchanged
		"error":    {responses(10*ms, 500), "server_error of a: 500 no ad for you"},
		"failure":  {fails(10*ms, upstream.ConnLost), "conn_lost of a"},
	} {
		t.Run(name, func(t *testing.T) {
			testsupport.Bubble(t, func(t *testing.T) {
				var change []func(*ssp.Options)
				if name == "document" {
					change = append(change, func(o *ssp.Options) { o.NoBidBody = ssp.NoBidVAST })
				}
				a, b := newFake(t, "a", tt.reply, change...), newFake(t, "b", fills(0, "other"))
				r := get(t)
				res := newRoute(Single, a, b).Do(&r.Request, nil, newProcess(t))
				want(t, "result", ended(&res), tt.want)
				if took := time.Since(r.Received); took != 10*ms || res.Legs() != nil {
					t.Errorf("took %v, legs %s", took, legsOf(&res))
				}
				b.wantRequests(0)
				res.Release()
				if res.Exchange != nil || res.Status() != 0 {
					t.Error("the result has a response after its release")
				}
				wantEmpty(t, r.Budget)
			})
		})
	}
}

// One leg is no fan-out: only the request itself counts as in flight.
func TestSequentialModesCountNoLegs(t *testing.T) {
	for _, mode := range []Mode{Single, Split, Waterfall} {
		testsupport.Bubble(t, func(t *testing.T) {
			a, p := newFake(t, "a", silent), newProcess(t)
			a.script = func(*upstream.Exchange) reply {
				if n := p.InFlight.Now(); n != 0 {
					t.Errorf("%d legs in flight", n)
				}
				return fills(0, "ad")
			}
			r := get(t)
			res := newRoute(mode, a).Do(&r.Request, nil, p)
			want(t, "result", ended(&res), "fill of a: 200 ad")
			res.Release()
		})
	}
}
