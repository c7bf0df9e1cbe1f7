package ssp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// TestDecisionsAboutRetries lists what is retried. Here a request is sent again as it was.
func TestErrorsThatAreRetried(t *testing.T) {
	get, post := exchange.GET, exchange.POST
	const no retryKind = firstAttempt
	for _, c := range []struct {
		name   string
		err    exchange.Error
		method exchange.Method
		stale  RetryStale
		why    retryKind // no: not sent again
	}{
		{"POST, not sent", notSent, post, StaleNever, retryNotSent},
		{"POST, not processed", notProcessed, post, StaleNever, retryNotProcessed},
		{"GET, stale", stale, get, StaleIdempotent, retryStale},
		{"HEAD, stale", stale, exchange.HEAD, StaleIdempotent, retryStale},
		{"POST, stale", stale, post, StaleIdempotent, no},
		{"POST, stale, all", stale, post, StaleAll, retryStale},
		{"GET, stale, never", stale, get, StaleNever, no},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &fakePool{steps: []step{fail(c.err), fill()}}
			cl := newClient(t, p, func(o *Options) { o.RetryStale = c.stale })
			r := cl.request(c.method)
			r.Body = []byte("body")
			res := cl.do(r)
			if c.why == no {
				res.want(c.err.Outcome)
				cl.wantSent(p, 1)
				cl.wantRetries(nil)
				return
			}
			res.want(exchange.Fill)
			cl.wantSent(p, 2)
			cl.wantRetries(map[retryKind]uint64{c.why: 1})
			first, second := p.requests()[0], p.requests()[1]
			testsupport.True(t, first.target == second.target && first.head == second.head && second.body == "body", "%+v was sent again as %+v", first, second)
			cl.wantIdle()
		})
	}
}

func TestRetryDropsThePartialResponse(t *testing.T) {
	p := &fakePool{steps: []step{
		func(ex *exchange.Exchange) error {
			_ = response(200, "half of", "X-Old: 1")(ex)
			return &stale
		}, fill()}}
	c := newClient(t, p, nil)
	ex := exchange.AcquireExchange()
	res := c.doOn(ex, c.request(exchange.GET), 0).want(exchange.Fill)
	if res.body != "an ad" || len(ex.Response.Fields) > 0 || c.budget.Used() != int64(len("an ad")) {
		t.Errorf("the response is %q with fields %q, and holds %d bytes", res.body, ex.Response.Fields, c.budget.Used())
	}
	ex.Release()
	c.wantIdle()
}

// An SSP that closes idle connections makes several of them stale at once.
func TestStaleConnectionsUseTheBudgetAndAreTriedOnceMoreThanRetryMax(t *testing.T) {
	p := &fakePool{steps: []step{fail(stale), fail(notSent), fail(stale), fill()}}
	c := newClient(t, p, func(o *Options) { o.RetryMax = 1 })
	c.get().want(exchange.Fill)
	c.wantRetries(map[retryKind]uint64{retryStale: 2, retryNotSent: 1})

	// The bound holds also if each connection pays for its own retry.
	p = &fakePool{steps: []step{func(ex *exchange.Exchange) error { ex.Served = fifthsPerToken; return &stale }}}
	c = newClient(t, p, nil)
	c.get().want(exchange.ConnLost).wantDetail("it was sent 3 times; see retry.max")
	c.wantSent(p, 3)

	p = &fakePool{steps: []step{fail(stale), fill()}}
	c = newClient(t, p, nil)
	c.spendBudget()
	c.get().want(exchange.ConnLost)
	c.wantSent(p, 1)
	wantMetrics(t, registry(t, c.ssp), `
# HELP adbuffer_retries_refused_total Retries and hedges that the retry budget refused: at most every fifth request to an SSP is sent again.
# TYPE adbuffer_retries_refused_total counter
adbuffer_retries_refused_total{kind="not_processed",ssp="openx"} 0
adbuffer_retries_refused_total{kind="not_sent",ssp="openx"} 0
adbuffer_retries_refused_total{kind="stale",ssp="openx"} 1
`, "adbuffer_retries_refused_total")

	// The connection's own responses pay for the retry, if there were enough of them.
	for served, sent := range map[int]int{fifthsPerToken - 1: 1, fifthsPerToken: 2} {
		p = &fakePool{steps: []step{func(ex *exchange.Exchange) error { ex.Served = served; return &stale }, fill()}}
		c = newClient(t, p, nil)
		c.spendBudget()
		c.get()
		c.wantSent(p, sent)
	}
}

// An SSP that refuses a request with REFUSED_STREAM is overloaded. A request that is sent again without
// limit or pauses makes the overload worse.
func TestARefusedRequestIsSentAgainOnceMoreThanRetryMaxAfterPausesThatGrow(t *testing.T) {
	for max, pauses := range map[int][]time.Duration{0: {0}, 1: {0, 10 * msec}, 3: {0, 10 * msec, 20 * msec, 40 * msec}} {
		testsupport.Bubble(t, func(t *testing.T) {
			p := &fakePool{steps: []step{fail(notProcessed)}}
			c := newClient(t, p, func(o *Options) { o.RetryMax = max })
			r := c.request(exchange.POST)
			r.Deadline = r.Received.Add(5 * time.Second)
			c.do(r).want(exchange.ConnLost).wantDetail(fmt.Sprintf("scripted; it was sent %d times; see retry.max", max+2))
			sent := p.requests()
			testsupport.MustEqual(t, len(sent), 1+len(pauses), "retry.max %[2]d: sent %[1]d times", max)
			for i, want := range pauses {
				testsupport.Equal(t, sent[i+1].at.Sub(sent[i].at), want, "retry.max %[2]d: pause %[3]d is %[1]v", max, i)
			}
			c.wantIdle()
		})
	}
}

// An SSP that closes each connection after a thousand requests is not overloaded. A request that meets three closes
// in a row must not end as conn_lost, and its retries must not use up the budget.
func TestConnectionsThatServedWellPayForRequestsBehindTheirClose(t *testing.T) {
	for _, c := range []struct {
		protocol     exchange.Protocol
		served, sent int
	}{
		{exchange.HTTP2, fifthsPerToken - 1, 2}, {exchange.HTTP2, fifthsPerToken, 3},
		{exchange.HTTP1Pipelined, fifthsPerToken - 1, 2}, {exchange.HTTP1Pipelined, fifthsPerToken, 6},
	} {
		p := &fakePool{steps: []step{func(ex *exchange.Exchange) error {
			ex.Protocol, ex.Served = c.protocol, c.served
			return &notProcessed
		}}}
		k := newClient(t, p, func(o *Options) { o.RetryMax = 1 })
		k.spendBudget()
		k.do(k.request(exchange.POST)).want(exchange.ConnLost)
		testsupport.Equal(t, len(p.requests()), c.sent, "%[2]v, %[3]d responses for each request: sent %[1]d times", c.protocol, c.served)
	}
}

// A request that only finds connections that take no more requests was never sent: retry.max and the
// budget do not count that. It tries until its deadline, with growing pauses, so the number of
// attempts is bounded for any deadline.
func TestUnsentRequestsAreTriedUntilTheDeadlineAtABoundedRate(t *testing.T) {
	unsent := notProcessed
	unsent.Unsent = true
	keptAndClosed := func(ex *exchange.Exchange) error { ex.Reused = true; return &notSent }
	for name, refuses := range map[string]step{"draining connections": fail(unsent), "kept connections closed": keptAndClosed} {
		for timeout, attempts := range map[time.Duration]int{295 * msec: 42, 5 * time.Second: 66} {
			testsupport.RunBubble(t, name+" for "+timeout.String(), func(t *testing.T) {
				p := &fakePool{steps: []step{refuses}}
				c := newClient(t, p, func(o *Options) { o.RetryMax = 0 })
				c.spendBudget()
				r := c.request(exchange.POST)
				r.Deadline = r.Received.Add(timeout)
				c.do(r).want(exchange.ConnLost)
				sent := p.requests()
				testsupport.Equal(t, len(sent), attempts, "%d attempts in %v", timeout)
				for i := range sent[1:] {
					var want time.Duration
					if i >= 3 {
						want = max(sent[i].at.Sub(r.Received)/8, msec)
					}
					testsupport.Equal(t, sent[i+1].at.Sub(sent[i].at), want, "the pause after attempt %[2]d is %[1]v", i+1)
				}
				c.wantIdle()
			})
		}
	}
}

// A pause between attempts ends with the leg.
func TestCancelledLegEndsThePauseBetweenAttempts(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := &fakePool{steps: []step{fail(notProcessed)}}
		c := newClient(t, p, func(o *Options) { o.RetryMax = 5 }) // pauses of 0, 10, 20, 40 and 80 ms
		time.AfterFunc(100*msec, cancel)
		testsupport.Equal(t, c.getIn(ctx, 0).took, 100*msec, "ended after %v")
		c.wantTokens(7) // the pauses of 10, 20 and 40 ms ended with a retry
	})
}

func TestNoTokenPaysForARetryWhosePauseOutlastsTheDeadline(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{fail(notProcessed)}}
		c := newClient(t, p, func(o *Options) { o.RetryMax = 5 })
		testsupport.Equal(t, c.getIn(t.Context(), 25*msec).took, 10*msec, "ended after %v") // the next pause is 20 ms
		c.wantSent(p, 3)
		c.wantTokens(9)
	})
}

func TestRetryIsMarkedForThePool(t *testing.T) {
	type terms struct {
		resent  bool
		redials int
	}
	var got []terms
	p := &fakePool{
		steps: []step{fail(notProcessed), fail(notSent), fail(stale), fill()},
		acquire: func(n int, ex *exchange.Exchange) error {
			got = append(got, terms{ex.Resent, ex.Redials})
			if n == 0 {
				ex.Redialed = 1 // it waited through a failed dial
			}
			return nil
		},
	}
	c := newClient(t, p, func(o *Options) { o.RetryMax = 3 })
	c.get().want(exchange.Fill)
	want := []terms{{false, 3}, {true, 2}, {false, 1}, {false, 1}}
	testsupport.True(t, slices.Equal(got, want), "the pool received %v, want %v", got, want)
	c.wantRetries(map[retryKind]uint64{retryNotSent: 2, retryNotProcessed: 1, retryStale: 1})
}

// HTTP_1_1_REQUIRED proves only that the SSP wants the request over HTTP/1.
func TestRequestThatMustUseHTTP1IsRetriedOnlyOverHTTP1(t *testing.T) {
	required := exchange.Error{
		Outcome: exchange.ConnLost, Progress: exchange.MaybeProcessed, RefusesHTTP2: true, OverHTTP1: true, Detail: "HTTP_1_1_REQUIRED",
	}
	for _, method := range []exchange.Method{exchange.GET, exchange.POST} {
		p := &fakePool{steps: []step{fail(required), fill()}, protocol: exchange.HTTP2}
		c := newClient(t, p, nil)
		c.do(c.request(method)).want(exchange.ConnLost).wantDetail("HTTP_1_1_REQUIRED")
		c.wantSent(p, 1)
		testsupport.Equal(t, p.returned, 1, "%d places were returned")
		c.wantIdle()

		p = &fakePool{steps: []step{func(*exchange.Exchange) error {
			p.protocol = exchange.HTTP1 // the pool has switched
			e := required
			return &e
		}, fill()}, protocol: exchange.HTTP2}
		c = newClient(t, p, nil)
		c.do(c.request(method)).want(exchange.Fill)
		c.wantSent(p, 2)
		c.wantRetries(map[retryKind]uint64{retryNotProcessed: 1})
	}
}

// A request that gets no place is retried only after a failed dial. If its retry gets no place, it ends
// with the first attempt's error. So it does if every address is in back-off: that says less.
func TestRequestsThatGetNoPlace(t *testing.T) {
	full := exchange.Error{Outcome: exchange.PendingFull, Detail: "full"}
	draining := exchange.Error{Outcome: exchange.Draining, Detail: "a reload has replaced the pool"}
	untrusted := exchange.Error{Outcome: exchange.TLSFailed, Progress: exchange.NotSent, Detail: "no trusted authority"}
	backsOff := func(o exchange.Outcome) exchange.Error {
		return exchange.Error{Outcome: o, Progress: exchange.NotSent, Detail: "every address backs off", Err: &refused}
	}
	for _, tt := range []struct {
		name    string
		errs    []exchange.Error // of the first acquisitions; a zero error is none
		steps   []step
		want    exchange.Outcome
		detail  string
		asked   int // acquisitions
		retries uint64
	}{
		{name: "queue full", errs: []exchange.Error{full}, want: exchange.PendingFull, detail: "full", asked: 1},
		{name: "waited too long", errs: []exchange.Error{{Outcome: exchange.PendingTimeout}}, want: exchange.PendingTimeout, asked: 1},
		{name: "deadline", errs: []exchange.Error{*exchange.ErrDeadlineNotSent}, want: exchange.Deadline, asked: 1},
		{name: "draining", errs: []exchange.Error{draining}, want: exchange.Draining, asked: 1},
		{name: "every address backs off", errs: []exchange.Error{backsOff(exchange.ConnectFailed)}, want: exchange.ConnectFailed, asked: 1},
		{name: "its dial failed", errs: []exchange.Error{refused}, want: exchange.Fill, asked: 2, retries: 1},
		{name: "both dials failed", errs: []exchange.Error{refused, refused}, want: exchange.ConnectFailed, asked: 2},
		{name: "a retry finds the queue full", errs: []exchange.Error{{}, full}, steps: []step{fail(stale)}, want: exchange.ConnLost, detail: "scripted", asked: 2},
		{name: "a retry finds the pool draining", errs: []exchange.Error{{}, draining}, steps: []step{fail(stale)}, want: exchange.ConnLost, detail: "scripted", asked: 2},
		{name: "TLS failed, then connections back off", errs: []exchange.Error{untrusted, backsOff(exchange.ConnectFailed)}, want: exchange.TLSFailed, detail: "no trusted authority", asked: 2},
		{name: "TLS failed, then TLS backs off", errs: []exchange.Error{untrusted, backsOff(exchange.TLSFailed)}, want: exchange.TLSFailed, detail: "no trusted authority", asked: 2},
		{name: "refused, then TLS backs off", errs: []exchange.Error{refused, backsOff(exchange.TLSFailed)}, want: exchange.ConnectFailed, detail: "connection refused", asked: 2},
		{name: "refused, then TLS failed", errs: []exchange.Error{refused, untrusted}, want: exchange.TLSFailed, detail: "no trusted authority", asked: 2},
		{name: "lost, then connections back off", errs: []exchange.Error{{}, backsOff(exchange.ConnectFailed)}, steps: []step{fail(stale)}, want: exchange.ConnectFailed, detail: "every address backs off", asked: 2},
		{name: "refused, then connections back off", errs: []exchange.Error{refused, backsOff(exchange.ConnectFailed)}, want: exchange.ConnectFailed, detail: "connection refused", asked: 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &fakePool{steps: tt.steps, acquire: func(n int, _ *exchange.Exchange) error {
				if n < len(tt.errs) && tt.errs[n].Outcome != 0 {
					return &tt.errs[n]
				}
				return nil
			}}
			c := newClient(t, p, nil)
			res := c.do(c.request(exchange.GET)).want(tt.want)
			if tt.detail != "" {
				res.wantDetail(tt.detail)
			}
			testsupport.Equal(t, p.acquired, tt.asked, "%d places were asked for")
			c.wantRetries(map[retryKind]uint64{retryNotSent: tt.retries})
			c.wantIdle()
		})
	}
}

func TestTheLastErrorSaysHowOftenARequestWasSent(t *testing.T) {
	for _, c := range []struct {
		name    string
		resends int
		err     exchange.Error
		says    bool
	}{
		{"refused at once", 0, notProcessed, false},
		{"refused again", 1, notProcessed, true},
		{"stale at once", 0, stale, false},
		{"stale again", 1, stale, true},
		{"sent again, and cut within the response", 1, cutMidResponse, false},
		{"sent again, and then not sent", 1, notSent, false},
	} {
		n := retries{resends: c.resends}
		testsupport.Equal(t, strings.HasSuffix(n.lastError(&c.err, 2).Detail, "; it was sent 2 times; see retry.max"), c.says, "%[2]s: %[1]v", c.name)
	}
}

// Retries do not prolong a request: it ends at its deadline, and nothing is sent after that.
func TestRetriesNeitherShortenNorExtendTheDeadline(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{after(80*msec, fail(notProcessed))}}
		c := newClient(t, p, func(o *Options) { o.RetryMax = 5 })
		res := c.get().want(exchange.Deadline)
		testsupport.Equal(t, res.took, 295*msec, "took %v")
		for _, s := range p.requests() {
			at := s.at.Sub(res.times.Queued)
			testsupport.True(t, at < 295*msec, "sent again after %v", at)
		}
		c.wantSent(p, 4) // after 0, 80, 170 and 270 ms
	})
}

func TestNothingIsRetriedAfterItsDeadline(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{func(ex *exchange.Exchange) error {
			time.Sleep(time.Until(ex.Deadline))
			return &stale
		}, fill()}}
		c := newClient(t, p, nil)
		c.get().want(exchange.ConnLost)
		c.wantSent(p, 1)
	})
}

func TestCancelledLegIsNotRetried(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := &fakePool{steps: []step{func(*exchange.Exchange) error {
		cancel()
		return &notProcessed
	}, fill()}}
	c := newClient(t, p, nil)
	c.getIn(ctx, 0).want(exchange.ConnLost)
	c.wantSent(p, 1)
}

// The pool uses Queued as the current time, so an attempt must not acquire a place in the past.
func TestEachAttemptIsQueuedWhenItBegins(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		var queued []time.Time
		p := &fakePool{steps: []step{after(30*msec, fail(stale)), fill()}, acquire: func(_ int, ex *exchange.Exchange) error {
			queued = append(queued, ex.Times.Queued)
			return nil
		}}
		c := newClient(t, p, nil)
		res := c.get().want(exchange.Fill)
		testsupport.Equal(t, queued[1].Sub(queued[0]), 30*msec, "the retry was queued %v after the first")
		testsupport.Equal(t, res.times.Queued, queued[0], "the recorded begin of the leg is wrong: %v")
	})
}
