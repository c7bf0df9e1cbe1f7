package pool

import (
	"testing"
	"time"

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
	for name, o := range map[string]func(*EjectionOptions){
		"consecutive":   func(o *EjectionOptions) { o.FailureRatio = 2 },
		"failure_ratio": func(o *EjectionOptions) { o.Consecutive = 0 },
		"both":          func(*EjectionOptions) {},
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

// An endpoint at which all requests fail is ejected, however its clients share the load.
func TestADeadEndpointIsEjectedHoweverItsClientsShareTheLoad(t *testing.T) {
	const every = 10 * msec
	alike := func(n int) rates.Group { return rates.Group(n % 10) }
	for name, c := range map[string]struct {
		client func(n int) rates.Group // of the n-th request
		dials  bool                    // the failures are failed dials
		most   int                     // failures until it is ejected
	}{
		"one client":                     {func(int) rates.Group { return 0 }, false, 5},
		"two alike":                      {func(n int) rates.Group { return rates.Group(n % 2) }, false, 5},
		"ten alike":                      {alike, false, 5},
		"ten alike, and dials fail":      {alike, true, 5},
		"one, and another one each 10 s": {func(n int) rates.Group { return rates.Group(max(0, n%1000-998)) }, false, 5},
		"two, one with 95 %":             {func(n int) rates.Group { return rates.Group(max(0, n%20-18)) }, false, 20},
		// Four of the other nine must fail too.
		"ten, one with 95 %": {func(n int) rates.Group { return rates.Group(max(0, n%20-18) * (1 + n/20%9)) }, false, 4 * 20},
	} {
		o := testEjection()
		var h health
		h.window.Init(o.Window, 0)
		now, n := time.Duration(0), 0
		for ; n < 2000; n++ {
			if h.record(&o, c.client(n), false, now) {
				t.Fatalf("%s: ejected by a success", name)
			}
			now += every
		}
		failures := 1
		client := c.client
		if c.dials {
			client = func(int) rates.Group { return rates.Ours }
		}
		for ; !h.record(&o, client(n), true, now) && failures < 1000; n++ {
			failures++
			now += every
		}
		if failures > c.most {
			t.Errorf("%s: ejected after %d failures, want %d", name, failures, c.most)
		}
	}
}
