package route

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/openrtb"
)

// mirroring returns a route to main with a mirror to copy.
func mirroring(main, copied *fakeSSP, share float64, budget int64) *Route {
	rt := newRoute(Single, main)
	b := new(exchange.Budget)
	b.SetLimit(budget)
	rt.Mirror = &Mirror{SSP: copied.SSP, Share: share, Budget: b, Stats: new(MirrorStats)}
	return rt
}

// sendMany sends n requests to rt, each followed by a pause. Each must get the ad of a.
func sendMany(t *testing.T, rt *Route, p *Process, n int, pause time.Duration) {
	t.Helper()
	for range n {
		r := get(t)
		res := rt.Do(&r.Request, nil, p)
		want(t, "result", ended(&res), "fill of a: 200 ad")
		res.Release()
		time.Sleep(pause)
	}
}

// The mirror's SSP gets the same requests. Requests do not wait for it, and never get its response.
func TestMirrorGetsCopies(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", fills(10*ms, "ad")), newFake(t, "b", fills(50*ms, "other"))
		rt := mirroring(a, b, 1, 1<<20)
		b.script = func(*exchange.Exchange) reply {
			held, copies := b.Snapshot().BufferedBytes, rt.Mirror.Budget.Used()
			testsupport.True(t, held == copies && held != 0, "%d bytes of the SSP's share are held for copies of %d bytes", held, copies)
			return b.reply
		}
		for range 5 {
			began := time.Now()
			r := get(t)
			res := rt.Do(&r.Request, nil, newProcess(t))
			want(t, "result", ended(&res), "fill of a: 200 ad")
			testsupport.Equal(t, time.Since(began), 10*ms, "the request took %v")
			res.Release()
			clear(r.Body) // the memory belongs to the next request
		}
		time.Sleep(time.Second)
		a.wantRequests(5)
		b.wantRequests(5)
		testsupport.True(t, a.received[4].target == b.received[4].target && a.received[4].fields == b.received[4].fields, "a received %+v, the mirror %+v", a.received[4], b.received[4])
		if n := rt.Mirror.Stats.outcomes[exchange.Fill].Load(); n != 5 || rt.Mirror.Budget.Used() != 0 || rt.Mirror.Stats.inFlight.Load() != 0 {
			t.Errorf("%d fills, %d bytes held, %d in flight", n, rt.Mirror.Budget.Used(), rt.Mirror.Stats.inFlight.Load())
		}
	})
}

// A panic in a mirrored request is reported and counted, and ends no other request.
func TestMirrorThatPanicsIsInternal(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", fills(0, "ad")), newFake(t, "b", reply{body: "x", panics: true})
		rt := mirroring(a, b, 1, 1<<20)
		var panics atomic.Int64
		p := &Process{InFlight: new(ssp.InFlight), Panicked: func(any, []byte) { panics.Add(1) }}
		sendMany(t, rt, p, 1, 0)
		synctest.Wait()
		if n := rt.Mirror.Stats.outcomes[exchange.Internal].Load(); n != 1 || panics.Load() != 1 || rt.Mirror.Stats.inFlight.Load() != 0 || rt.Mirror.Budget.Used() != 0 {
			t.Errorf("%d are counted as internal, %d panics reported, %d in flight, %d bytes held", n, panics.Load(), rt.Mirror.Stats.inFlight.Load(), rt.Mirror.Budget.Used())
		}
	})
}

// A mirror that never responds uses only its own limits: copies beyond them are dropped.
func TestBlackHoledMirrorIsDropped(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", fills(0, "ad")), newFake(t, "b", silent)
		rt := mirroring(a, b, 1, 1<<20)
		p := newProcess(t)
		p.InFlight.SetLimit(40)
		sendMany(t, rt, p, 100, 0)
		testsupport.Equal(t, rt.Mirror.Stats.inFlight.Load(), 10, "%d mirrored requests are in flight, want a quarter of 40")
		testsupport.Equal(t, rt.Mirror.Stats.dropped.Load(), 90, "%d were dropped")
		time.Sleep(10 * time.Second)
		testsupport.Equal(t, rt.Mirror.Stats.outcomes[exchange.Deadline].Load(), 10, "%d ended at their deadline")
	})
}

// An SSP over HTTP/2 may state a limit on headers, so that a copy ends as too_large.
func TestEachOutcomeThatACopyCanHaveHasASeries(t *testing.T) {
	for _, o := range []exchange.Outcome{exchange.ConnLost, exchange.BadResponse, exchange.ResponseTooLarge, exchange.TooLarge, exchange.Internal} {
		testsupport.Bubble(t, func(t *testing.T) {
			rt := mirroring(newFake(t, "a", fills(0, "ad")), newFake(t, "b", fails(0, o)), 1, 1<<20)
			sendMany(t, rt, newProcess(t), 1, time.Second)
			c := NewMirrorCollector(func() *Table { return NewTable([]*Route{rt}) })
			want := fmt.Sprintf(`adbuffer_mirrored_total{outcome="%v",route=%q,ssp="b"} 1`, o, rt.Name)
			text, err := testutil.CollectAndFormat(c, expfmt.TypeTextPlain, "adbuffer_mirrored_total")
			testsupport.True(t, err == nil && strings.Contains(string(text), want), "%v: no %s in\n%s", err, want, text)
		})
	}
}

// If its budget has no room, no request is mirrored.
func TestMirrorWithoutBudgetIsDropped(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", fills(0, "ad")), newFake(t, "b", fills(0, "ad"))
		rt := mirroring(a, b, 1, 10)
		sendMany(t, rt, newProcess(t), 1, time.Second)
		b.wantRequests(0)
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(NewMirrorCollector(func() *Table { return NewTable([]*Route{rt}) }))
		series := 1 // dropped
		for o := range exchange.Outcomes {
			if o.Row().Mirror == exchange.Counted {
				series++
			}
		}
		n, err := testutil.GatherAndCount(registry)
		testsupport.True(t, err == nil && n == series, "%d series (%v), want %d", n, err, series)
		families, _ := registry.Gather()
		text := families[0].String()
		testsupport.True(t, strings.Contains(text, `value:"dropped"`), "the metric is %s", text)
		testsupport.Equal(t, rt.Mirror.Stats.dropped.Load(), 1, "%d were dropped")
	})
}

// After 5 copies without a response, only single probes are sent, until the first response. All other copies are
// dropped before any work is done for them.
func TestSilentMirrorGetsProbesOnly(t *testing.T) {
	for name, c := range map[string]struct {
		reply reply
		most  int // probes in 3 s, after the silence has begun
	}{
		"never responds": {silent, 10}, // each takes until the deadline of 300 ms
		"fails at once":  {fails(0, exchange.ConnLost), 30},
	} {
		testsupport.RunBubble(t, name, func(t *testing.T) {
			a, b := newFake(t, "a", fills(0, "ad")), newFake(t, "b", c.reply)
			rt := mirroring(a, b, 1, 1<<20)
			p := newProcess(t)
			mirror := func(requests int) { sendMany(t, rt, p, requests, 10*ms) }
			mirror(100)
			time.Sleep(time.Second)
			before, dropped := len(b.requests()), rt.Mirror.Stats.dropped.Load()
			mirror(300)
			time.Sleep(time.Second)
			probes := len(b.requests()) - before
			testsupport.Between(t, probes, c.most-1, c.most+1, "%d probes in 3 s, want %d", c.most)
			if n := rt.Mirror.Stats.dropped.Load() - dropped; n != uint64(300-probes) {
				t.Errorf("%d copies were dropped, %d sent, want 300 in all", n, probes)
			}
			b.mu.Lock()
			b.reply = fills(0, "ad")
			b.mu.Unlock()
			mirror(2) // the first is a probe
			before = len(b.requests())
			mirror(100)
			testsupport.Equal(t, len(b.requests())-before, 100, "%d of 100 copies were sent after the SSP responded again")
			n := rt.Mirror.Stats.inFlight.Load()
			testsupport.True(t, n == 0 && rt.Mirror.Budget.Used() == 0, "%d in flight, %d bytes held", n, rt.Mirror.Budget.Used())
		})
	}
}

// A client states deadlines that the mirror's SSP cannot meet. The copies of other clients' requests are
// sent nevertheless. A deadline counts if the SSP had its usual time.
func TestShortDeadlinesOfAClientStopNoCopiesOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		reply    reply
		deadline time.Duration // of the first requests
		most     int           // copies of the later 20 that are sent
		least    int
	}{
		"slower than the deadlines":   {fills(100*ms, "ad"), 50 * ms, 20, 20},
		"silent for the usual time":   {silent, 300 * ms, 2, 1}, // probes
		"silent, and short deadlines": {silent, 50 * ms, 20, 20},
	} {
		testsupport.RunBubble(t, name, func(t *testing.T) {
			a := newFake(t, "a", fills(0, "ad"))
			b := newFake(t, "b", c.reply, func(o *ssp.Options) { o.BlameAfter = 300 * ms })
			rt := mirroring(a, b, 1, 1<<20)
			p := newProcess(t)
			mirror := func(deadline, pause time.Duration) {
				r := get(t)
				r.Deadline = r.Received.Add(deadline)
				res := rt.Do(&r.Request, nil, p)
				res.Release()
				time.Sleep(pause)
			}
			for range silentAfter + 1 {
				mirror(c.deadline, 2*c.deadline)
			}
			before := len(b.requests())
			for range 20 {
				mirror(300*ms, 10*ms)
			}
			n := len(b.requests()) - before
			testsupport.True(t, n >= c.least && n <= c.most, "%d of 20 later copies were sent, want %d to %d", n, c.least, c.most)
			time.Sleep(time.Second)
		})
	}
}

// An SSP that fails now and then gets all copies: a trial must show how often it fails.
func TestMirrorThatSometimesFailsGetsAllCopies(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", fills(0, "ad")), newFake(t, "b", silent)
		n := 0
		b.script = func(*exchange.Exchange) reply {
			if n++; n%5 == 0 {
				return fills(0, "ad")
			}
			return fails(0, exchange.ConnLost)
		}
		rt := mirroring(a, b, 1, 1<<20)
		sendMany(t, rt, newProcess(t), 100, 10*ms)
		b.wantRequests(100)
	})
}

func TestMirrorsShareIsRandom(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", fills(0, "ad")), newFake(t, "b", fills(0, "ad"))
		rt := mirroring(a, b, 0.25, 1<<20)
		sendMany(t, rt, newProcess(t), 1000, ms)
		// 250 are expected, the standard deviation is 14.
		testsupport.Between(t, rt.Mirror.Stats.outcomes[exchange.Fill].Load(), 180, 320, "%d of 1000 requests were mirrored")
	})
}

// The mirror's SSP gets the body without the members of its own remove. The copies for it count in the mirror's budget,
// and the client's response in the client's. A body that cannot be read is not mirrored.
func TestMirrorGetsItsOwnBody(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		const body = `{"device":{"ifa":"x","ip":"y"},"user":1}`
		removes := func(path string) func(*ssp.Options) {
			return func(o *ssp.Options) {
				o.Edit = openrtb.NewEdit([]openrtb.Removal{{Path: openrtb.MustParsePath(path)}})
			}
		}
		a, b := newFake(t, "a", fills(10*ms, "ad"), removes("user")), newFake(t, "b", fills(50*ms, "other"), removes("device.ifa"))
		rt := mirroring(a, b, 1, 1<<20)
		NewTable([]*Route{rt})
		b.script = func(*exchange.Exchange) reply {
			held, least := rt.Mirror.Budget.Used(), int64(2*len(body))
			testsupport.True(t, held >= least, "%d bytes are held for two copies of %d bytes", held, len(body))
			return b.reply
		}
		for _, why := range []openrtb.Reason{openrtb.Readable, openrtb.Duplicate} {
			r := newClient(t, exchange.POST, "", body)
			r.Unreadable = why
			res := rt.Do(&r.Request, nil, newProcess(t))
			held := r.Budget.Used()
			testsupport.True(t, why != openrtb.Readable || held == int64(len("ad")), "%d bytes are held for the response", held)
			res.Release()
			wantEmpty(t, r.Budget)
			want(t, "the client's body", string(r.Body), body)
			clear(r.Body) // the memory belongs to the next request
		}
		time.Sleep(time.Second)
		a.wantRequests(1)
		b.wantRequests(1)
		want(t, "a's body", a.received[0].body, `{"device":{"ifa":"x","ip":"y"}}`)
		want(t, "the mirror's body", b.received[0].body, `{"device":{"ip":"y"},"user":1}`)
		if s := rt.Mirror.Stats; s.dropped.Load() != 1 || s.outcomes[exchange.Fill].Load() != 1 || rt.Mirror.Budget.Used() != 0 {
			t.Errorf("%d dropped, %d fills, %d bytes held", s.dropped.Load(), s.outcomes[exchange.Fill].Load(), rt.Mirror.Budget.Used())
		}
	})
}
