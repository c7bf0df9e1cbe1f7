package ssp

import (
	"fmt"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// A request that must not share a connection, or that may be the reason for a GOAWAY with an error, is sent again
// once on a connection of its own, and not in front of other requests. A request that other ends of connections
// leave out shares a connection until its last retry.
func TestRequestsAreIsolatedAfterTheirConnectionsEnd(t *testing.T) {
	large := exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.NotSent, Isolate: exchange.IsolateNext, Collateral: true}
	suspect := exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.NotProcessed, Isolate: exchange.IsolateNext}
	left := exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.NotProcessed, Isolate: exchange.IsolateLast}
	for _, row := range []struct {
		name  string
		steps []step
		want  string // of each attempt: s shared, a alone, f in front
		ends  exchange.Outcome
	}{
		{"large", []step{fail(large), fill()}, "[s a]", exchange.Fill},
		{"large, refused", []step{fail(large), fail(exchange.Error{Outcome: exchange.TooLarge, Progress: exchange.MaybeProcessed})}, "[s a]", exchange.TooLarge},
		{"suspect", []step{fail(suspect), fill()}, "[s a]", exchange.Fill},
		{"suspect twice", []step{fail(suspect), fail(suspect), fill()}, "[s a]", exchange.ConnLost},
		{"left out twice", []step{fail(left), fail(left), fill()}, "[s sf af]", exchange.Fill},
		{"left out three times", []step{fail(left), fail(left), fail(left), fill()}, "[s sf af]", exchange.ConnLost},
		{"refused twice", []step{fail(notProcessed), fail(notProcessed), fill()}, "[s sf sf]", exchange.Fill},
	} {
		t.Run(row.name, func(t *testing.T) {
			testsupport.Bubble(t, func(t *testing.T) {
				var got []string
				p := &fakePool{steps: row.steps, acquire: func(_ int, ex *exchange.Exchange) error {
					how := map[bool]string{false: "s", true: "a"}[ex.Isolated] + map[bool]string{true: "f"}[ex.Resent]
					got = append(got, how)
					return nil
				}}
				c := newClient(t, p, nil)
				r := c.request(exchange.POST)
				r.Deadline = r.Received.Add(time.Second)
				c.do(r).want(row.ends)
				testsupport.Equal(t, fmt.Sprint(got), row.want, "the attempts were %s")
				c.wantIdle()
			})
		})
	}
}

// A connection ends with a hundred exchanges. The breaker counts one failure and ten responses, and the
// endpoint one failure.
func TestTheEndOfASharedConnectionIsOneFailure(t *testing.T) {
	counted := exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.MaybeProcessed}
	p := &fakePool{}
	for range 10 {
		p.steps = append(p.steps, fill())
	}
	p.steps = append(p.steps, fail(counted), fail(*counted.AsCollateral()))
	c := newClient(t, p, nil)
	for range 10 {
		c.get().want(exchange.Fill)
	}
	for range 100 {
		c.get().want(exchange.ConnLost)
	}
	requests, failures := c.ssp.breaker.Tally()
	testsupport.True(t, requests == 11 && failures == 1, "the breaker counts %d failures of %d requests, want 1 of 11", failures, requests)
	failed := 0
	for _, r := range p.ended {
		if r == exchange.Failure {
			failed++
		}
	}
	testsupport.Equal(t, failed, 1, "the endpoint has %d failures")
}
