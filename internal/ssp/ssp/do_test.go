package ssp

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
)

func TestEndpointSetsTheTargetAndTheClientOnlyTheQuery(t *testing.T) {
	for _, c := range []struct {
		name, path, ours, theirs string
		host                     string
		target, authority        string
	}{
		{"both queries, the configured one first", "/bid", "v=2", "pub=1&slot=top", "", "/bid?v=2&pub=1&slot=top", "rtb.openx.example:8443"},
		{"ours alone", "/bid", "v=2", "", "", "/bid?v=2", "rtb.openx.example:8443"},
		{"theirs alone", "/bid", "", "pub=1", "", "/bid?pub=1", "rtb.openx.example:8443"},
		{"none, and no question mark", "/", "", "", "", "/", "rtb.openx.example:8443"},
		{"bytes unchanged", "/b%2f", "", "a=%2e;;&?=&", "", "/b%2f?a=%2e;;&?=&", "rtb.openx.example:8443"},
		{"host is the configured one", "/bid", "", "", "serverside.example", "/bid", "serverside.example"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &fakePool{}
			cl := newClient(t, p, func(o *Options) { o.Path, o.Query, o.Host = c.path, c.ours, c.host })
			r := cl.request(exchange.GET)
			r.Query = []byte(c.theirs)
			cl.do(r).want(exchange.Fill)
			got := p.requests()[0]
			if got.target != c.target || got.authority != c.authority || got.scheme != "https" {
				t.Errorf("sent %s %s %s, want %s %s", got.scheme, got.authority, got.target, c.authority, c.target)
			}
		})
	}
}

func TestFieldsCrossByThePolicyAndBodyAndMethodUnchanged(t *testing.T) {
	p := &fakePool{}
	c := newClient(t, p, func(o *Options) {
		o.Policy = header.NewPolicy(header.PolicyOptions{Remove: []string{"X-Internal"}, Set: []header.NameValue{{Name: "X-Openrtb-Version", Value: "2.6"}}, Identity: header.None})
	})
	c.head("Host: ads.example\r\nUser-Agent: phone\r\nCookie: a=b\r\nX-Internal: 1\r\nX-Openrtb-Version: 1\r\nConnection: close\r\nAccept-Encoding: gzip\r\n\r\n")
	r := c.request(exchange.POST)
	r.Body = []byte(`{"id":"1"}`)
	c.do(r).want(exchange.Fill)
	r.WantsUncoded = true
	c.do(r).want(exchange.Fill)

	sent := p.requests()
	want := "User-Agent: phone\r\nAccept-Encoding: gzip\r\nX-Openrtb-Version: 2.6\r\n"
	testsupport.True(t, sent[0].head == want, "sent the fields\n%s\nwant\n%s", sent[0].head, want)
	testsupport.True(t, strings.Contains(sent[1].head, "Accept-Encoding: identity\r\n") && !strings.Contains(sent[1].head, "gzip"), "a plain request sent the fields\n%s", sent[1].head)
	testsupport.True(t, sent[0].method == exchange.POST && sent[0].body == `{"id":"1"}`, "sent %v with body %q", sent[0].method, sent[0].body)
	c.wantIdle()
}

// Data of an exchange's earlier use must not be visible.
func TestReusedExchangeSendsNothingOfItsLastRequest(t *testing.T) {
	p := &fakePool{}
	c := newClient(t, p, nil)
	ex := exchange.AcquireExchange()
	defer ex.Release()
	ex.Block = append(ex.Block, strings.Repeat("old", 100)...)
	r := c.request(exchange.GET)
	r.Query = []byte("new")
	c.doOn(ex, r, 0).want(exchange.Fill)
	got := p.requests()[0]
	testsupport.True(t, got.target == "/bid?v=2&new" && got.head == "User-Agent: phone\r\n", "sent %q with fields %q", got.target, got.head)
}

func TestEarliestDeadlineEndsTheRequest(t *testing.T) {
	for _, c := range []struct {
		name                  string
		client, request, tier time.Duration
		want                  time.Duration
		detail                string
	}{
		{"the client's", 100 * msec, 0, 0, 100 * msec, "the deadline was 100ms; see tmax and deadline.reserve"},
		{"timeouts.request", 100 * msec, 60 * msec, 0, 60 * msec, "the deadline was 60ms; see timeouts.request"},
		{"the tier's", 100 * msec, 60 * msec, 20 * msec, 20 * msec, "the deadline was 20ms; see routes[].ssps[].timeout"},
		{"the client's, since it is smaller", 10 * msec, 60 * msec, 20 * msec, 10 * msec, "the deadline was 10ms; see tmax and deadline.reserve"},
	} {
		testsupport.RunBubble(t, c.name, func(t *testing.T) {
			cl := newClient(t, &fakePool{steps: []step{never()}}, func(o *Options) { o.RequestTimeout = c.request })
			r := cl.request(exchange.GET)
			r.Deadline, r.DeadlineFrom = r.Received.Add(c.client), "tmax"
			ex := exchange.AcquireExchange()
			defer ex.Release()
			res := cl.doOn(ex, r, c.tier).want(exchange.Deadline)
			testsupport.Equal(t, res.took, c.want, "took %v")
			res.wantDetail("the SSP did not respond in time: " + c.detail)
			cl.wantIdle()

			cl = newClient(t, &fakePool{steps: []step{fail(*exchange.ErrDeadlineNotSent)}}, func(o *Options) { o.RequestTimeout = c.request })
			r.Received = time.Now()
			r.Deadline = r.Received.Add(c.client)
			cl.doOn(ex, r, c.tier).want(exchange.Deadline).wantDetail("the request could not be sent in time: "+c.detail, "pool.max_conns")
		})
	}
}

func TestTimeoutCountsFromTheBeginOfTheLeg(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		c := newClient(t, &fakePool{steps: []step{never()}}, nil)
		r := c.request(exchange.GET)
		time.Sleep(100 * msec) // time of an earlier tier
		ex := exchange.AcquireExchange()
		defer ex.Release()
		start := time.Now()
		o, _ := c.ssp.Do(r, ex, 50*msec)
		testsupport.True(t, o == exchange.Deadline && time.Since(start) == 50*msec, "%v after %v, want a deadline after 50ms", o, time.Since(start))
		testsupport.True(t, ex.Times.Queued.Equal(start), "Queued is %v after the leg began", ex.Times.Queued.Sub(start))
	})
}

func TestRequestOfAClosedClientConnectionIsNotSent(t *testing.T) {
	for _, c := range []struct {
		name  string
		wait  time.Duration
		gone  bool
		want  exchange.Outcome
		calls int
	}{
		{"gone", 2 * msec, true, exchange.ClientGone, 1},
		{"still there", 2 * msec, false, exchange.Fill, 1},
		{"a wait too short to ask", msec, true, exchange.Fill, 0},
	} {
		testsupport.RunBubble(t, c.name, func(t *testing.T) {
			p := &fakePool{acquire: func(int, *exchange.Exchange) error { time.Sleep(c.wait); return nil }}
			cl := newClient(t, p, nil)
			r := cl.request(exchange.GET)
			calls := 0
			r.Gone = func() bool { calls++; return c.gone }
			cl.do(r).want(c.want)
			testsupport.Equal(t, calls, c.calls, "Gone was called %d times")
			gone := c.want == exchange.ClientGone
			testsupport.True(t, gone == (len(p.requests()) == 0) && gone == (p.returned == 1), "%d sent, %d places returned unused", len(p.requests()), p.returned)
			cl.wantIdle()
		})
	}
}

// The first attempt takes time, so Do looks at the client's connection before it sends a retry.
func TestClosedClientConnectionIsFoundBeforeARetry(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{after(50*msec, fail(stale)), fill()}}
		c := newClient(t, p, nil)
		r := c.request(exchange.GET)
		r.Gone = func() bool { return true }
		c.do(r).want(exchange.ClientGone)
		c.wantSent(p, 1)
	})
}

func TestRequestsOverMaxInFlightAreRefusedWithTheLimit(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		c := newClient(t, &fakePool{steps: []step{after(10*msec, fill())}}, func(o *Options) { o.MaxInFlight = 2 })
		results := c.start(3)
		(<-results).want(exchange.Overloaded).wantDetail("2 of 2", "max_in_flight")
		(<-results).want(exchange.Fill)
		(<-results).want(exchange.Fill)
		c.wantIdle()
	})
}

// Te: trailers reaches HTTP/2 SSPs only, and only if the configuration does not remove it.
func TestTrailersAreRequestedUnlessThePolicyRemovesTe(t *testing.T) {
	for _, c := range []struct {
		protocol exchange.Protocol
		remove   []string
		want     string
	}{
		{exchange.HTTP2, nil, "Te: trailers\r\n"},
		{exchange.HTTP2, []string{"TE"}, ""},
		{exchange.HTTP1, nil, ""},
	} {
		p := &fakePool{protocol: c.protocol}
		cl := newClient(t, p, func(o *Options) {
			o.Policy = header.NewPolicy(header.PolicyOptions{Identity: header.None, Remove: append(c.remove, "User-Agent")})
		})
		cl.fields.HTTP2 = true
		cl.head("Host: ads.example\r\nte: trailers\r\n\r\n")
		cl.get().want(exchange.Fill)
		testsupport.Equal(t, p.requests()[0].head, c.want, "%[2]v, remove %[3]v: the header is %[1]q", c.protocol, c.remove)
	}
}

func TestPanicReleasesItsInFlightCountAndBytes(t *testing.T) {
	c := newClient(t, &fakePool{steps: []step{func(*exchange.Exchange) error { panic("BUG: scripted") }}}, func(o *Options) { o.RewriteTmax = true })
	r := c.request(exchange.POST)
	r.Body, r.TmaxStart, r.TmaxEnd = []byte(`{"tmax":100}`), 8, 11
	func() {
		defer func() {
			testsupport.True(t, recover() != nil, "the panic did not reach the caller")
		}()
		c.do(r)
	}()
	c.wantIdle()
}

func TestEveryRequestIsCountedOnceAndTimedIfAdmitted(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		c := newClient(t, &fakePool{steps: []step{after(7*msec, fill()), after(3*msec, fail(cutMidResponse))}}, func(o *Options) { o.QPS = QPSOptions{Limit: 1, Burst: 2} })
		c.get().want(exchange.Fill)
		c.get().want(exchange.ConnLost)
		c.get().want(exchange.QPSLimit)
		c.ssp.Refused(exchange.Overloaded)
		for o := range exchange.Outcomes {
			want := uint64(0)
			if o == exchange.Fill || o == exchange.ConnLost || o == exchange.QPSLimit || o == exchange.Overloaded {
				want = 1
			}
			testsupport.Equal(t, c.ssp.stats.outcomes[o].Load(), want, "counted %d as %v", o)
		}
		n, sum := c.ssp.stats.duration.Count(), c.ssp.stats.duration.Sum()
		testsupport.True(t, n == 2 && sum == 0.01, "%d requests of %v s were timed, want 2 of 0.01", n, sum)
		testsupport.Equal(t, c.ssp.stats.firstByte.Count(), 1, "%d first bytes were timed, want that of the response")
	})
}

func TestCancelledLegEndsAtOnceAndIsNoFailure(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		c := newClient(t, &fakePool{steps: []step{never()}}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*msec, cancel)
		res := c.getIn(ctx, 0).want(exchange.Cancelled)
		testsupport.Equal(t, res.took, 20*msec, "took %v")
		requests, _ := c.ssp.breaker.Tally()
		testsupport.True(t, requests == 0, "it counts for the breaker")
	})
}

func TestUntypedErrorBecomesInternal(t *testing.T) {
	c := newClient(t, &fakePool{steps: []step{func(*exchange.Exchange) error { return errors.New("untyped") }}}, nil)
	c.get().want(exchange.Internal)
}
