package pool

import (
	"testing"
	"time"

	"adbuffer/internal/balancer"
	"adbuffer/internal/rates"
	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

// finishFor ends a request of a client of group g.
func finishFor(r *request, g rates.Group, failed bool) {
	r.ex.Times.Done = time.Now()
	r.do()
	o, v := upstream.Fill, upstream.Success
	if failed {
		o, v = upstream.ServerError, upstream.Failure
	}
	r.place.Ended(o, v, g, &r.ex.Times)
}

// A client whose requests fail, with most of the load, ejects no endpoint for the others.
func TestFailuresThatAClientProvokesEjectNothing(t *testing.T) {
	for name, o := range map[string]func(*balancer.Ejection){
		"consecutive":   func(o *balancer.Ejection) { o.FailureRatio = 2 },
		"failure_ratio": func(o *balancer.Ejection) { o.Consecutive = 0 },
		"both":          func(*balancer.Ejection) {},
	} {
		t.Run(name, func(t *testing.T) {
			testsupport.Bubble(t, func(t *testing.T) {
				p := start(t, endpointsSSP(t, 2), func(po *Options) {
					withWeights(1, 1)(po)
					o(&po.Ejection)
				})
				for i := range 60 * 9 { // before the first failure
					finishFor(acquire(t, p), rates.Group(1+i%9), false)
					time.Sleep(10 * msec)
				}
				for i := range 600 {
					for range 20 {
						finishFor(acquire(t, p), 0, true)
					}
					finishFor(acquire(t, p), rates.Group(1+i%9), false)
					time.Sleep(50 * msec)
				}
				for _, e := range p.Snapshot().Endpoints {
					if e.Ejections != 0 {
						t.Errorf("%s was ejected %d times", e.Endpoint, e.Ejections)
					}
				}
			})
		})
	}
}
