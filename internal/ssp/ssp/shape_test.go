package ssp

import (
	"bytes"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/ssp/fleet"
	"adbuffer/internal/ssp/shaper"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// bySlot fills requests with slot=good, and responds to others without a bid.
func bySlot(ex *exchange.Exchange) error {
	if bytes.Contains(ex.Request.Target, []byte("slot=good")) {
		return fill()(ex)
	}
	return response(204, "")(ex)
}

// shaped are the settings of an SSP whose limit drops by query:slot.
func shaped(limit float64) func(o *Options) {
	return func(o *Options) {
		o.QPS = QPSOptions{Limit: limit, Shaped: true}
		o.Shape = ShapeOptions{Keys: []string{"query:slot"}, Explore: 0.03}
	}
}

// getSlot is get with a value of the key.
func (c *client) getSlot(slot string) result {
	r := c.request(exchange.GET)
	r.Query = []byte("slot=" + slot)
	return c.do(r)
}

// load sends 100 requests a second, of which a tenth have slot=good. It returns how the good ones and the others ended.
func (c *client) load(seconds int) (good, bad map[exchange.Outcome]int) {
	good, bad = map[exchange.Outcome]int{}, map[exchange.Outcome]int{}
	for i := range 100 * seconds {
		time.Sleep(10 * msec)
		if i%10 == 0 {
			good[c.getSlot("good").outcome]++
		} else {
			bad[c.getSlot("bad").outcome]++
		}
	}
	return good, bad
}

// learned returns the outcomes and fills that the shaper has learned for a slot.
func (c *client) learned(slot string) (sent, fills float64) {
	r := c.request(exchange.GET)
	r.Query = []byte("slot=" + slot)
	p := c.ssp.Shaping(r).Prefixes
	return p[0].Sent, p[0].Fills
}

// The limit is 15 requests a second, and 10 of 100 are filled.
func TestALimitWithAShaperDropsWhatTheSSPRarelyFills(t *testing.T) {
	for name, ofFleet := range map[string]bool{"own limit": false, "a quarter of the fleet's limit": true} {
		testsupport.Bubble(t, func(t *testing.T) {
			p := &fakePool{steps: []step{bySlot}}
			with := shaped(15)
			var f *fleet.Fleet
			if ofFleet {
				f = newFleet(t, 4)
				with = func(o *Options) {
					shaped(60)(o)
					o.QPS.Burst, o.QPS.Fleet = 80, f.Bucket("openx", 60, 80)
				}
			}
			c := newClient(t, p, with)
			c.load(60)
			before := len(p.requests())
			good, bad := c.load(60)
			testsupport.AtLeast(t, good[exchange.Fill], 540, "%[2]s: %[1]d of 600 good requests were filled: %[3]v", name, good)
			testsupport.AtLeast(t, bad[exchange.Shaped], 4950, "%[2]s: %[1]d of 5400 bad requests were dropped: %[3]v", name, bad)
			testsupport.AtLeast(t, bad[exchange.NoBid], 10, "%[2]s: %[1]d bad requests were explored: %[3]v", name, bad)
			testsupport.AtMost(t, len(p.requests())-before, 60*15+20, "%[2]s: %[1]d requests were sent in a minute", name)
			if ofFleet { // the replica's share becomes 120 requests a second
				f.Bucket("openx", 480, 80)
				_, bad = c.load(10)
				testsupport.AtLeast(t, bad[exchange.NoBid], 700, "%[2]s: with eight times the limit %[1]d of 900 bad requests were sent: %[3]v", name, bad)
			}
			c.wantIdle()
		})
	}
}

// The threshold of a limit of 3 requests a second is above the scores of all bad requests. With an own limit, bad requests
// pass while three quarters of the 10 tokens are left.
func TestTokensThatWouldBeWastedSendTheWorstRequests(t *testing.T) {
	for name, tt := range map[string]struct {
		with func(t *testing.T, o *Options)
		want uint64
	}{
		"own limit": {func(_ *testing.T, o *Options) { shaped(3)(o); o.QPS.Burst = 10 }, 3},
		"a quarter of the fleet's limit": {func(t *testing.T, o *Options) {
			shaped(12)(o)
			o.QPS.Burst, o.QPS.Fleet = 40, fleetOf(t, 12, 40, 4)
		}, 0},
	} {
		testsupport.Bubble(t, func(t *testing.T) {
			c := newClient(t, &fakePool{steps: []step{bySlot}}, func(o *Options) { tt.with(t, o) })
			for fills := 0.0; fills < 20; _, fills = c.learned("good") { // chance decides when the first good request is sent
				c.load(60)
			}
			time.Sleep(4 * time.Second) // fills the bucket
			passed := func() uint64 {
				report, _, _ := c.ssp.ShapeReport()
				return report.Requests[shaper.Passed]
			}
			before := passed()
			for range 30 {
				c.getSlot("bad")
			}
			testsupport.Equal(t, passed()-before, tt.want, "%[2]s: %[1]d of 30 bad requests passed", name)
		})
	}
}

// A share of 0 is a limit of nothing, in the first settings and after a reload.
func TestAReplicaWithoutAShareSendsNothing(t *testing.T) {
	now := time.Now()
	o := &Options{QPS: QPSOptions{Limit: 100, Burst: 10, Shaped: true, Fleet: new(fleet.Bucket)}, Shape: ShapeOptions{Keys: []string{"query:slot"}, Explore: 0.03}}
	p := newShape(o, nil, now)
	for i, what := range []string{"at first", "after a reload"} {
		p.Decide(new(shaper.Segment), 5, now.Add(time.Duration(i)*time.Second))
		d := p.Decide(new(shaper.Segment), 5, now.Add(time.Duration(i+1)*time.Second))
		testsupport.Equal(t, d.Kind, shaper.Dropped, "%[2]s the second request is %[1]v", what)
		p = newShape(o, p, now)
	}
}

// The sums of Ranges[].Sent are what the SSP got, and the loss is scaled by the explored requests that were not sent.
func TestARequestThatTheShaperChoseAndThatIsNotSentIsTakenBack(t *testing.T) {
	for name, tt := range map[string]struct {
		tokens float64 // of 20
		want   exchange.Outcome
	}{
		"no token": {0, exchange.QPSLimit},
		"no place": {10, exchange.PendingFull},
	} {
		testsupport.Bubble(t, func(t *testing.T) {
			full, n := false, 0
			p := &fakePool{
				acquire: func(int, *exchange.Exchange) error {
					if full {
						return &exchange.Error{Outcome: exchange.PendingFull, Progress: exchange.NotSent}
					}
					return nil
				},
				steps: []step{func(ex *exchange.Exchange) error {
					if n++; n%20 == 0 {
						return fill()(ex)
					}
					return bySlot(ex)
				}},
			}
			c := newClient(t, p, func(o *Options) {
				shaped(15)(o)
				o.QPS.Burst, o.Shape.Explore = 20, 0.3
			})
			c.load(60)
			before, _, _ := c.ssp.ShapeReport()
			after := before
			full = true
			for tries := 0; after.Requests[shaper.Explored] < before.Requests[shaper.Explored]+30; tries++ {
				testsupport.MustTrue(t, tries < 10000, "%s: explored %v, then %v: %+v", name, before, after, c.ssp.Shaping(c.request(exchange.GET)))
				time.Sleep(10 * msec)
				for now := c.ssp.since(time.Now()); c.ssp.qps.has(now) && c.ssp.qps.left(now) > tt.tokens; {
					c.ssp.qps.take(now)
				}
				if got := c.getSlot("bad"); got.outcome != exchange.Shaped {
					got.want(tt.want)
				}
				after, _, _ = c.ssp.ShapeReport()
			}
			var sent float64
			for _, r := range after.Ranges {
				sent += r.Sent
			}
			testsupport.Equal(t, sent, float64(len(p.requests())), "%[2]s: the report says that %[1]v requests were sent", name)
			// No fill came in between, so the odds of the loss have risen by the share of explored requests that were sent.
			sentShare := float64(before.Requests[shaper.Explored]) / float64(after.Requests[shaper.Explored])
			odds := func(r *shaper.Report) float64 { return r.Hour.Estimate / (1 - r.Hour.Estimate) }
			testsupport.True(t, math.Abs(odds(&after)*sentShare/odds(&before)-1) < 1e-9, "%s: %v of the explored requests were sent, and the odds of the loss rose from %v to %v", name, sentShare, odds(&before), odds(&after))
		})
	}
}

func TestADroppedRequestCostsNothingAndIsNobodysFault(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{bySlot}}
		c := newClient(t, p, shaped(15))
		c.load(30)
		acquired, outcomes := p.acquired, c.ssp.Snapshot().Outcomes
		dropped := c.getSlot("bad")
		for dropped.outcome != exchange.Shaped {
			dropped = c.getSlot("bad")
			acquired = p.acquired
		}
		dropped.want(exchange.Shaped).wantDetail("ssps[].qps.shape")
		s := c.ssp.Snapshot()
		testsupport.Equal(t, p.acquired, acquired, "%d places were acquired: a dropped request needs no place")
		testsupport.Equal(t, dropped.err.RetryAfter, 0, "the client may come back after %v")
		testsupport.AtLeast(t, s.Outcomes["shaped"], outcomes["shaped"]+1, "%d were counted")
		testsupport.True(t, s.BreakerFailures == 0 && !c.ssp.Failed(exchange.Shaped, nil), "the breaker has %d failures", s.BreakerFailures)
		c.wantIdle()
	})
}

func TestOnlyFillsAndNoBidsOfFirstAttemptsTeach(t *testing.T) {
	head := func(c *client) {
		r := c.request(exchange.HEAD)
		r.Query = []byte("slot=x")
		testsupport.True(c.t, c.ssp.Shaping(r) == nil, "a HEAD is scored")
		c.do(r)
	}
	get := func(c *client) { c.getSlot("x") }
	for name, tt := range map[string]struct {
		steps       []step
		do          func(c *client)
		sent, fills float64
	}{
		"a fill":                       {[]step{fill()}, get, 1, 1},
		"a no-bid":                     {[]step{response(204, "")}, get, 1, 0},
		"an error response":            {[]step{response(500, "")}, get, 0, 0},
		"a timeout":                    {[]step{never()}, get, 0, 0},
		"a lost connection":            {[]step{fail(cutMidResponse)}, get, 0, 0},
		"a retry that fills":           {[]step{fail(notSent), fill()}, get, 0, 0},
		"a fill of HEAD":               {[]step{fill()}, head, 0, 0},
		"a hedge that fills":           {[]step{never(), fill()}, get, 0, 0},
		"a first attempt with a hedge": {[]step{after(100*msec, fill()), never()}, get, 1, 1},
	} {
		testsupport.Bubble(t, func(t *testing.T) {
			c := newClient(t, &fakePool{steps: tt.steps}, func(o *Options) {
				shaped(15)(o)
				o.Hedge = HedgeOptions{Enabled: true, Quantile: 0.95}
			})
			c.ssp.lateAfter.value.Store(int64(50 * msec))
			tt.do(c)
			sent, fills := c.learned("x")
			testsupport.True(t, sent == tt.sent && fills == tt.fills, "%s: the shaper has learned %v fills of %v requests, want %v of %v", name, fills, sent, tt.fills, tt.sent)
		})
	}
}

func TestADryRunOfAShaperLearnsAndDropsNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		with    func(o *Options)
		atLimit int // requests a second that are sent; 0: all
	}{
		"of the shaper":                        {func(o *Options) { o.QPS.Limit, o.Shape.DryRun, o.Shape.MaxLoss = 0, true, 0.05 }, 0},
		"of the limit":                         {func(o *Options) { o.QPS.DryRun = true }, 0},
		"of the shaper, with a limit in force": {func(o *Options) { o.Shape.DryRun = true }, 15},
	} {
		testsupport.Bubble(t, func(t *testing.T) {
			p := &fakePool{steps: []step{bySlot}}
			c := newClient(t, p, func(o *Options) {
				shaped(15)(o)
				tt.with(o)
			})
			good, bad := c.load(40)
			if tt.atLimit > 0 {
				sent := good[exchange.Fill] + bad[exchange.NoBid]
				testsupport.Between(t, sent, 40*tt.atLimit, 40*tt.atLimit+20, "%[2]s: %[1]d requests were sent", name)
				testsupport.True(t, sent+good[exchange.QPSLimit]+bad[exchange.QPSLimit] == 4000 && good[exchange.QPSLimit] > 0, "%s: %v, %v", name, good, bad)
			} else {
				testsupport.True(t, good[exchange.Fill] == 400 && bad[exchange.NoBid] == 3600, "%s: %v, %v", name, good, bad)
			}
			report, enforced, ok := c.ssp.ShapeReport()
			testsupport.True(t, ok && !enforced && report.State == shaper.Learning, "%s: %+v", name, report)
			testsupport.AtLeast(t, report.Requests[shaper.Dropped], 1500, "%[2]s: the report says that %[1]d requests would be dropped", name)
		})
	}
}

// What the shaper has learned belongs to the name of the SSP and to its keys.
func TestASuccessorContinuesTheShaperOfTheSameKeys(t *testing.T) {
	c := newClient(t, &fakePool{}, shaped(15))
	c.getSlot("x").want(exchange.Fill)
	wantFills := func(what string, want float64) {
		t.Helper()
		_, fills := c.learned("x")
		testsupport.Equal(t, fills, want, "%[2]s: the shaper has learned %[1]v fills", what)
	}
	o := c.ssp.opts
	o.QPS.Limit, o.Shape.Explore, o.MaxInFlight = 30, 0.1, 7
	c.ssp = c.ssp.With(o)
	wantFills("another limit", 1)
	c.ssp = c.ssp.movedTo(o, c.ssp.lender)
	wantFills("other endpoints", 1)
	c.getSlot("x").want(exchange.Fill)
	wantFills("other endpoints", 2)
	for _, step := range []struct {
		key  string
		want float64
	}{{"query:Slot", 0}, {"query:slot", 0}, {"header:User-Agent", 0}, {"header:user-agent", 1}, {"header:User-AGENT", 2}, {"openrtb:/app/id", 0}, {"openrtb:/App/id", 0}} {
		o.Shape.Keys = []string{step.key}
		c.ssp = c.ssp.With(o)
		wantFills(step.key, step.want)
		c.getSlot("x").want(exchange.Fill)
	}
	o.Shape.Keys = []string{"query:slot", "header:User-Agent"}
	c.ssp = c.ssp.With(o)
	wantFills("other keys", 0)
	o.Shape.Keys = nil
	c.ssp = c.ssp.With(o)
	testsupport.True(t, c.ssp.shape == nil && c.ssp.Shaping(c.request(exchange.GET)) == nil, "without keys there is a shaper")
	c.getSlot("x").want(exchange.Fill)
}

// Eight goroutines send requests to an SSP and its successors, while reloads change its limit and reports are read.
func TestAShaperServesConcurrentRequestsAndReloads(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		c := newClient(t, &fakePool{steps: []step{bySlot}}, shaped(40))
		var current atomic.Pointer[SSP]
		current.Store(c.ssp)
		var clients sync.WaitGroup
		for g := range 8 {
			clients.Go(func() {
				for i := range 100 {
					c.on(current.Load()).getSlot([]string{"good", "bad", "worse"}[(i+g)%3])
					time.Sleep(20 * msec)
				}
			})
		}
		for i := range 50 {
			s := current.Load()
			o := s.opts
			o.QPS.Limit, o.Shape.Explore, o.Shape.DryRun = float64(20+i), 0.01*float64(1+i), i%10 == 9
			current.Store(s.With(o))
			s.Shaping(c.request(exchange.GET))
			s.ShapeReport()
			time.Sleep(40 * msec)
		}
		clients.Wait()
		r, _, _ := current.Load().ShapeReport()
		testsupport.Equal(t, r.Requests[shaper.Passed]+r.Requests[shaper.Explored]+r.Requests[shaper.Dropped], 800, "%d requests were scored")
		testsupport.AtLeast(t, r.Requests[shaper.Dropped], 100, "%d requests were dropped")
		c.wantIdle()
	})
}

func TestKeysOfTheShaperAreReadFromTheRequest(t *testing.T) {
	keys := []string{"header:X-Country", "query:slot", "openrtb:/imp/0/banner/w", "openrtb:/app/id"}
	c := newClient(t, &fakePool{}, func(o *Options) { o.Shape = ShapeOptions{Keys: keys, Explore: 0.03} })
	const body = `{"imp":[{"banner":{"w":300}},{"banner":{"w":728}}],"app":{"id":"a\u0062"}}`
	for _, tt := range []struct {
		fields, query, body string
		want                []string
	}{
		{"x-country: DE\r\n", "x=1&slot=top%20left&slot=2", body, []string{"DE", "top%20left", "300", `"a\u0062"`}},
		{"", "slot", `{"imp":[],"app":{}}`, []string{"", "", "", ""}},
		{"X-Country: DE\r\n", "slot=1", body + "x", []string{"DE", "1", "", ""}},
		{"X-Country: DE\r\n", "slot=1", `{"app":{"id":1},"app":{"id":1}}`, []string{"DE", "1", "", ""}},
		{"Content-Encoding: gzip\r\n", "", body, []string{"", "", "", ""}},
		{"", "", "", []string{"", "", "", ""}},
	} {
		r := &Request{Method: exchange.POST, Fields: new(header.RequestFields), Identity: &c.id, Query: []byte(tt.query), Body: []byte(tt.body)}
		testsupport.NoError(t, r.Fields.Scan([]byte("Host: a\r\n"+tt.fields+"\r\n")))
		var want []ShapedKey
		for i, value := range tt.want {
			want = append(want, ShapedKey{keys[i], value})
		}
		got := c.ssp.Shaping(r).Keys
		testsupport.True(t, slices.Equal(got, want), "%q %q %s: the values are %q, want %q", tt.fields, tt.query, tt.body, got, want)
		// Segments are of the shown values.
		var segment, again shaper.Segment
		c.ssp.shape.read(r, &segment, nil)
		for i, k := range got {
			c.ssp.shape.Hash(i, &again, []byte(k.Value))
		}
		testsupport.Equal(t, segment, again, "the segment is %v")
	}
}

func TestMetricsOfAShaper(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		c := newClient(t, &fakePool{steps: []step{bySlot}}, func(o *Options) {
			shaped(0)(o)
			o.Shape.MaxLoss = 0.01
		})
		c.getSlot("good").want(exchange.Fill)
		c.getSlot("bad").want(exchange.NoBid)
		reg := registry(t, c.ssp)
		wantMetrics(t, reg, `
# HELP adbuffer_shape_explore_ratio Probability with which a request below the threshold of qps.shape is sent.
# TYPE adbuffer_shape_explore_ratio gauge
adbuffer_shape_explore_ratio{ssp="openx"} 1
# HELP adbuffer_shape_fills_total Fills of first attempts of the requests that qps.shape passed or explored.
# TYPE adbuffer_shape_fills_total counter
adbuffer_shape_fills_total{decision="explored",ssp="openx"} 0
adbuffer_shape_fills_total{decision="passed",ssp="openx"} 1
# HELP adbuffer_shape_loss_ratio Share of an SSP's fills that qps.shape lost in the last hour: the estimate, and the bounds of its 95 % interval (low, high); no series before 100 fills. In a dry run, the share that it would have lost. Bound max_loss is the setting, if it is above 0; a dry run has no such series.
# TYPE adbuffer_shape_loss_ratio gauge
adbuffer_shape_loss_ratio{bound="max_loss",ssp="openx"} 0.01
# HELP adbuffer_shape_paused 1 while no-bids teach qps.shape nothing, since the SSP gave no fill where 20 were expected.
# TYPE adbuffer_shape_paused gauge
adbuffer_shape_paused{ssp="openx"} 0
# HELP adbuffer_shape_requests_total Requests that qps.shape scored, by its decision: passed, explored (drawn at random from those below the threshold, and sent) or dropped. A dry run drops none of them.
# TYPE adbuffer_shape_requests_total counter
adbuffer_shape_requests_total{decision="dropped",ssp="openx"} 0
adbuffer_shape_requests_total{decision="explored",ssp="openx"} 0
adbuffer_shape_requests_total{decision="passed",ssp="openx"} 2
# HELP adbuffer_shape_segments Prefixes of segments in the table of qps.shape, of at most 8192.
# TYPE adbuffer_shape_segments gauge
adbuffer_shape_segments{ssp="openx"} 2
`, "adbuffer_shape_explore_ratio", "adbuffer_shape_fills_total", "adbuffer_shape_loss_ratio", "adbuffer_shape_paused", "adbuffer_shape_requests_total", "adbuffer_shape_segments")
		c.load(60)
		for name, want := range map[string]int{"adbuffer_shape_loss_ratio": 4, "adbuffer_shape_lost_fills_total": 1, "adbuffer_shape_lost_fills_variance_total": 1, "adbuffer_shape_threshold_ratio": 1} {
			n, err := testutil.GatherAndCount(reg, name)
			testsupport.True(t, err == nil && n == want, "%s has %d series (%v), want %d", name, n, err, want)
		}
		problems, err := testutil.GatherAndLint(reg)
		testsupport.True(t, err == nil && len(problems) == 0, "%v, %v", problems, err)
		// A dry run may lose more than max_loss: nothing is lost.
		for name, dryRun := range map[string]func(o *Options){
			"qps.dry_run":       func(o *Options) { o.QPS.DryRun = true },
			"qps.shape.dry_run": func(o *Options) { o.Shape.DryRun = true },
		} {
			o := c.ssp.opts
			o.QPS.DryRun, o.Shape.DryRun = false, false
			dryRun(&o)
			c.ssp = c.ssp.With(o)
			n, err := testutil.GatherAndCount(registry(t, c.ssp), "adbuffer_shape_loss_ratio")
			testsupport.True(t, err == nil && n == 3, "%s: adbuffer_shape_loss_ratio has %d series (%v), want low, estimate and high", name, n, err)
		}
	})
}
