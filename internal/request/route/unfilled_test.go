//go:build !race

// This campaign asks thousands of times, one after the other. The race detector would make it take six times as long.

package route

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// ends are ways in which a leg ends without a fill, at least one of each rank.
var ends = map[string]reply{
	"no_bid":         {status: 204, fields: "X-Nbr: 7\r\n"},
	"redirect":       {status: 302, body: "there"},
	"client_error":   {status: 404, body: "where"},
	"server_error":   {status: 503, body: "tired"},
	"deadline":       fails(0, exchange.Deadline),
	"connect_failed": fails(0, exchange.ConnectFailed),
	"overloaded":     fails(0, exchange.Overloaded),
}

// winner returns the index of the result that the client gets if no SSP filled, by the documented
// rule. That is a 204 if any SSP had no bid, otherwise the first response in route order, otherwise
// the first SSP's error.
func winner(names []string) (i int) {
	if i = slices.Index(names, "no_bid"); i >= 0 {
		return i
	}
	for i, n := range names {
		if ends[n].status != 0 {
			return i
		}
	}
	return 0
}

// TestOutcomeWithoutAFill tries every combination of three ends, and every order of the responses
// to a parallel request.
func TestOutcomeWithoutAFill(t *testing.T) {
	var all []string
	for n := range ends {
		all = append(all, n)
	}
	slices.Sort(all)
	for _, mode := range []Mode{Waterfall, ParallelFirst} {
		for order := range 3 {
			testsupport.Bubble(t, func(t *testing.T) {
				fakes := []*fakeSSP{newFake(t, "a", silent), newFake(t, "b", silent), newFake(t, "c", silent)}
				rt, p := newRoute(mode, fakes...), newProcess(t)
				for n := range len(all) * len(all) * len(all) {
					names := []string{all[n%len(all)], all[n/len(all)%len(all)], all[n/len(all)/len(all)]}
					for i, f := range fakes {
						f.reply = ends[names[i]]
						f.reply.after = time.Duration(1+(i+order)%3) * ms
					}
					r := get(t)
					res := rt.Do(&r.Request, nil, p)
					i := winner(names)
					expect := fmt.Sprintf("%s of %s", names[i], fakes[i].Name())
					if s := ends[names[i]].status; s != 0 {
						expect += fmt.Sprintf(": %d", s)
					}
					if b := ends[names[i]].body; b != "" {
						expect += " " + b
					}
					want(t, fmt.Sprintf("%v, order %d", names, order), ended(&res), expect)
					if names[i] == "no_bid" && string(res.Exchange.Response.Fields) != "X-Nbr: 7\r\n" {
						t.Errorf("a 204 has the fields %q", res.Exchange.Response.Fields)
					}
					testsupport.Equal(t, len(res.Legs()), 3, "%d legs")
					res.Release()
					wantEmpty(t, r.Budget)
				}
			})
		}
	}
}
