package ssp

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/wire/exchange"
)

// breaker refuses (sheds) a share of the requests to an SSP that fails. It has no open and closed
// state. The share rises with the ratio of failures in the window, and some requests always pass,
// so that it notices when the SSP recovers.
//
//	shed
//	1 - min_probe ┤        ╱
//	              │      ╱
//	            0 ┼────╱───┬── failures / requests
//	              failure_ratio  1
//
// The groups of clients whose requests fail most do not count, if the others send enough requests:
// rates.Group. So no client can make the breaker shed other clients' requests. Requests that are shed
// do not count in the window. Times are since the SSP was made. It is safe for concurrent use.
//
// The breaker forgets all requests when an endpoint goes out while another one serves. Otherwise the
// failures of the primaries would shed the requests that a spare could serve. The breaker does not know
// which endpoint failed. If the other endpoints fail too, it needs min_requests requests to notice.
type breaker struct {
	opts BreakerOptions
	*rates.Window
	*shedCounts
	lender  interface{ Exclusions() uint64 }
	forgot  *atomic.Uint64 // lender.Exclusions at the last look
	refusal refusal[int64] // by the window's step: its figures are at most a step old
}

// shedCounts counts requests that were shed, and requests that a dry run would have shed.
type shedCounts struct{ shed, wouldShed atomic.Uint64 }

// refuse decides at random whether a request may pass, and returns an error if not.
func (b *breaker) refuse(now time.Duration) *exchange.Error {
	if !b.opts.Enabled {
		return nil
	}
	b.Advance(now)
	if _, failures := b.Tally(); failures == 0 {
		return nil // the common case
	}
	b.forget()
	ratio := b.Ratio(b.opts.FailureRatio, b.opts.MinRequests)
	share := b.share(ratio)
	if rand.Float64() >= share {
		return nil
	}
	if b.opts.DryRun {
		b.wouldShed.Add(1)
		return nil
	}
	b.shed.Add(1)
	return b.refusal.err(b.Step(), func() *exchange.Error {
		requests, failures := b.Tally()
		counted := ""
		if float64(failures)/float64(requests)-ratio > 0.01 {
			counted = fmt.Sprintf(" (%.0f %% without the clients whose requests fail most)", 100*ratio)
		}
		return exchange.Errorf(exchange.BreakerOpen, exchange.NotSent,
			"%d of the %d requests to it in the last %v failed%s, and up to %.0f %% may fail; %.0f %% of the requests are shed; see ssps[].breaker",
			failures, requests, b.opts.Window, counted, 100*b.opts.FailureRatio, 100*share)
	})
}

// forget forgets all requests if an endpoint has gone out since the last look.
func (b *breaker) forget() {
	if left, was := b.lender.Exclusions(), b.forgot.Load(); left != was && b.forgot.CompareAndSwap(was, left) {
		b.Clear()
	}
}

// record counts a request that was sent for a client, and whether it failed.
func (b *breaker) record(now time.Duration, client rates.Group, failed bool) {
	if b.opts.Enabled {
		b.Record(now, client, failed)
	}
}

// shedRatio returns the share of requests that the breaker sheds now, or would shed in a dry run.
func (b *breaker) shedRatio(now time.Duration) float64 {
	if !b.opts.Enabled {
		return 0
	}
	b.Advance(now)
	b.forget()
	return b.share(b.Ratio(b.opts.FailureRatio, b.opts.MinRequests))
}

// share returns the share of requests that is shed while this share of the requests fails.
func (b *breaker) share(failing float64) float64 {
	o := &b.opts
	if failing <= o.FailureRatio {
		return 0
	}
	return (failing - o.FailureRatio) / (1 - o.FailureRatio) * (1 - o.MinProbe)
}
