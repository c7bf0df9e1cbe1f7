package ssp

import (
	"fmt"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/upstream"
)

// A request that the SSP's connection does not share, or that may be the reason for a GOAWAY with an error,
// goes again once on a connection of its own, and not in front of others. What other connections' ends leave
// out shares a connection until its last retry.
func TestRequestsAreIsolatedAfterTheirConnectionsEnd(t *testing.T) {
	large := upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.NotSent, Isolate: upstream.IsolateNext, Collateral: true}
	suspect := upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.NotProcessed, Isolate: upstream.IsolateNext}
	left := upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.NotProcessed, Isolate: upstream.IsolateLast}
	for _, row := range []struct {
		name  string
		steps []step
		want  string // of each attempt: s shared, a alone, f in front
		ends  upstream.Outcome
	}{
		{"large", []step{fail(large), fill()}, "[s a]", upstream.Fill},
		{"large, refused", []step{fail(large), fail(upstream.Error{Outcome: upstream.TooLarge, Progress: upstream.MaybeProcessed})}, "[s a]", upstream.TooLarge},
		{"suspect", []step{fail(suspect), fill()}, "[s a]", upstream.Fill},
		{"suspect twice", []step{fail(suspect), fail(suspect), fill()}, "[s a]", upstream.ConnLost},
		{"left out twice", []step{fail(left), fail(left), fill()}, "[s sf af]", upstream.Fill},
		{"left out three times", []step{fail(left), fail(left), fail(left), fill()}, "[s sf af]", upstream.ConnLost},
		{"refused twice", []step{fail(notProcessed), fail(notProcessed), fill()}, "[s sf sf]", upstream.Fill},
	} {
		t.Run(row.name, func(t *testing.T) {
			testsupport.Bubble(t, func(t *testing.T) {
				var got []string
				p := &fakePool{steps: row.steps, acquire: func(_ int, ex *upstream.Exchange) error {
					how := map[bool]string{false: "s", true: "a"}[ex.Isolated] + map[bool]string{true: "f"}[ex.Resent]
					got = append(got, how)
					return nil
				}}
				c := newClient(t, p, nil)
				r := c.request(upstream.POST)
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
	counted := upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.MaybeProcessed}
	p := &fakePool{}
	for range 10 {
		p.steps = append(p.steps, fill())
	}
	p.steps = append(p.steps, fail(counted), fail(*counted.AsCollateral()))
	c := newClient(t, p, nil)
	for range 10 {
		c.get().want(upstream.Fill)
	}
	for range 100 {
		c.get().want(upstream.ConnLost)
	}
	requests, failures := c.ssp.breaker.Tally()
	testsupport.True(t, requests == 11 && failures == 1, "the breaker counts %d failures of %d requests, want 1 of 11", failures, requests)
	failed := 0
	for _, r := range p.ended {
		if r == upstream.Failure {
			failed++
		}
	}
	testsupport.Equal(t, failed, 1, "the endpoint has %d failures")
}
