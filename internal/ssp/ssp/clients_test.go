package ssp

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
)

// identitiesOf returns the identities of n clients, each in a group of its own.
func identitiesOf(t testing.TB, c *client, n int) []*header.Identity {
	var all []*header.Identity
	seen := map[rates.Group]bool{}
	for i := uint32(1); len(all) < n; i++ {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], 198<<24|51<<16|i)
		id := new(header.Identity)
		id.Resolve(&c.fields, netip.AddrFrom4(a), false, nil, false)
		if g := id.Group(); !seen[g] {
			seen[g] = true
			all = append(all, id)
		}
		testsupport.MustTrue(t, i <= 1e6, "%d addresses are in %d groups", i, len(all))
	}
	return all
}

// scriptedByQuery responds to a request whose query is one of a key's with the step of that key, and
// with a fill to other requests.
func scriptedByQuery(steps map[string]step) step {
	return func(ex *exchange.Exchange) error {
		for q, s := range steps {
			if bytes.HasSuffix(ex.Request.Target, []byte(q)) {
				return s(ex)
			}
		}
		return fill()(ex)
	}
}

// getAs sends a request of a client.
func (c *client) getAs(id *header.Identity, query string) result {
	r := c.request(exchange.GET)
	r.Identity, r.Query = id, []byte(query)
	return c.do(r)
}

var failures = map[string]step{
	"bad":   response(500, ""),
	"busy":  response(503, "", "Retry-After: 20"),
	"limit": response(429, "", "Retry-After: 20"),
	"slow":  after(100*msec, fill()),
	"ok":    after(10*msec, fill()),
}

// One of ten clients provokes failures, with most of the load. No request of the others is refused.
func TestFailuresThatAClientProvokesShedAndPauseNothingOfOthers(t *testing.T) {
	for query, of := range map[string]exchange.Outcome{"bad": exchange.ServerError, "busy": exchange.ServerError, "limit": exchange.ClientError} {
		testsupport.RunBubble(t, query, func(t *testing.T) {
			c := newClient(t, &fakePool{steps: []step{scriptedByQuery(failures)}}, func(o *Options) { o.RetryAfterShare = 0.5 })
			all := identitiesOf(t, c, 10)
			for _, id := range all[1:] { // before the first failure
				for range 3 {
					c.getAs(id, "").want(exchange.Fill)
				}
			}
			for i := range 150 {
				for range 10 {
					c.getAs(all[0], query).want(of)
				}
				c.getAs(all[1+i%9], "").want(exchange.Fill)
				time.Sleep(100 * msec)
			}
			s := c.ssp.Snapshot()
			testsupport.True(t, s.BreakerShedRatio == 0 && s.RetryAfterPaused == 0, "%v of the requests are shed, %d responses paused the SSP", s.BreakerShedRatio, s.RetryAfterPaused)
		})
	}
}

// All clients' requests fail, however the load is shared. Requests are shed as soon as with a single
// client.
func TestABrokenSSPIsShedHoweverItsClientsShareTheLoad(t *testing.T) {
	shares := map[string]func(n int) int{ // the client of the n-th request
		"one":            func(int) int { return 0 },
		"ten alike":      func(n int) int { return n % 10 },
		"one with 95 %":  func(n int) int { return max(0, n%20-18) * (1 + n/20%9) },
		"two with a lot": func(n int) int { return n%2 + max(0, n%40-38)*(1+n/40%8) },
	}
	for name, clientOf := range shares {
		testsupport.RunBubble(t, name+", at once", func(t *testing.T) {
			c := newClient(t, &fakePool{steps: []step{response(500, "")}}, nil)
			all := identitiesOf(t, c, 10)
			for n := range 20 {
				c.getAs(all[clientOf(n)], "").want(exchange.ServerError)
			}
			testsupport.AtLeast(t, c.ssp.Snapshot().BreakerShedRatio, 0.8999, "%v of the requests are shed after 20 failures")
		})
		testsupport.RunBubble(t, name+", after good responses", func(t *testing.T) {
			p := &fakePool{steps: []step{fill()}}
			c := newClient(t, p, nil)
			all := identitiesOf(t, c, 10)
			n := 0
			send := func() {
				c.getAs(all[clientOf(n)], "")
				n++
				time.Sleep(20 * msec)
			}
			for range 750 {
				send()
			}
			p.steps = []step{response(500, "")}
			broken := time.Now()
			for c.ssp.Snapshot().BreakerShedRatio == 0 {
				send()
			}
			// After half of the window, half of the requests in it have failed.
			testsupport.Between(t, time.Since(broken), 4*time.Second, 5500*msec, "the first request was shed after %v, want about 5 s")
		})
	}
}

// An SSP that requests a pause from all clients gets few further requests: about as many as are needed to reach
// most groups of clients, and only one if there is a single client.
func TestA503WithRetryAfterPausesOnceMostClientsGotIt(t *testing.T) {
	for _, c := range []struct {
		clients, most int
	}{{1, 1}, {2, 2}, {3, 2}, {10, 6}, {16, 9}} {
		testsupport.Bubble(t, func(t *testing.T) {
			p := &fakePool{steps: []step{fill()}}
			cl := newClient(t, p, func(o *Options) { o.RetryAfterShare = 0.5 })
			all := identitiesOf(t, cl, c.clients)
			for n := range 100 {
				cl.getAs(all[n%c.clients], "").want(exchange.Fill)
			}
			p.steps = []step{failures["busy"]}
			n := 0
			for ; n < 100 && cl.getAs(all[n%c.clients], "").outcome == exchange.ServerError; n++ {
			}
			testsupport.Equal(t, n, c.most, "with %[2]d clients, %[1]d responses paused the SSP", c.clients)
			cl.wantPauses(1, n-1)
		})
	}
}

// A client that sends nothing for 10 s does not prevent a pause, and a pause of one client does not
// stay in memory for longer.
func TestOnlyRecentResponsesDecideAboutAPause(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		c := newClient(t, &fakePool{steps: []step{scriptedByQuery(failures)}}, func(o *Options) { o.RetryAfterShare = 0.5 })
		all := identitiesOf(t, c, 3)
		c.getAs(all[0], "").want(exchange.Fill)
		c.getAs(all[1], "").want(exchange.Fill)
		c.getAs(all[1], "busy").want(exchange.ServerError)
		time.Sleep(recently + msec)
		c.getAs(all[0], "").want(exchange.Fill)
		c.getAs(all[2], "busy").want(exchange.ServerError)
		c.getAs(all[0], "").want(exchange.Fill) // all[1] was asked too long ago
		time.Sleep(recently + msec)
		c.getAs(all[2], "busy").want(exchange.ServerError)
		c.getAs(all[0], "").want(exchange.SSPBackoff)
	})
}

// One of ten clients sends most of the requests. They take three times as long as those of the others, or a
// hundredth of the time, or they all fail and are retried. The others' requests are hedged as late as without
// that client, and are retried.
func TestRequestsOfOneClientMoveNeitherHedgesNorRetriesOfOthers(t *testing.T) {
	steps := map[string]step{
		"slow":  after(30*msec, fill()),
		"fast":  after(msec/10, fill()),
		"reset": fail(exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.NotSent}),
		"ok":    after(10*msec, fill()),
	}
	for _, query := range []string{"slow", "fast"} {
		testsupport.RunBubble(t, query, func(t *testing.T) {
			c := newClient(t, &fakePool{steps: []step{scriptedByQuery(steps)}}, func(o *Options) { o.Hedge.Enabled = true })
			all := identitiesOf(t, c, 10)
			for i := range 300 {
				for range 3 {
					c.getAs(all[0], query)
				}
				c.getAs(all[1+i%9], "ok").want(exchange.Fill)
			}
			testsupport.Between(t, c.ssp.lateAfter.get(), 10*msec, 11*msec, "an attempt is late after %v, want 10ms and a little more")
		})
	}
	testsupport.RunBubble(t, "retries", func(t *testing.T) {
		c := newClient(t, &fakePool{steps: []step{scriptedByQuery(steps)}}, func(o *Options) { o.RetryMax, o.Breaker.Enabled = 1, false })
		all := identitiesOf(t, c, 10)
		for range 100 {
			c.getAs(all[0], "reset").want(exchange.ConnLost)
		}
		retried := c.ssp.stats.retries[retryNotSent].Load()
		testsupport.Equal(t, retried, 29, "%d of the client's 100 requests were retried, want ten and a fifth of the others")
		for i := range 5 {
			c.getAs(all[1+i], "reset").want(exchange.ConnLost)
		}
		testsupport.Equal(t, c.ssp.stats.retries[retryNotSent].Load()-retried, 5, "%d of the others' 5 requests were retried")
	})
}
