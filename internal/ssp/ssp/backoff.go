package ssp

import (
	"sync/atomic"
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/syntax"
)

// backoff refuses requests to an SSP that asked for a pause. Times are since the SSP was made. It
// is safe for concurrent use.
type backoff struct {
	share float64 // retry_after_share; 0 = a single response pauses
	*pause
	retryAfters *retryAfters
	refusal     refusal[time.Duration] // by how long the pause lasts
}

// pause is the learned state of a backoff. Its maximum also holds for requests that began before a
// change of the settings.
type pause struct {
	max    atomic.Int64 // ns; the newest retry_after_max; 0 = never pause
	until  atomic.Int64 // ns
	recent rates.Window // responses of the last second; a 429 is a failure
	askers askers
}

// retryAfters counts responses with Retry-After.
type retryAfters struct{ paused, ignored atomic.Uint64 }

// minThrottled is how many responses of the last second must be 429 before one of them pauses the
// SSP, if share is not 0.
const minThrottled = 3

func (b *backoff) refuse(now time.Duration) *exchange.Error {
	left := b.left(now)
	if left == 0 {
		return nil
	}
	left = (left + refusalStep - 1).Truncate(refusalStep) // up, so that a request after Retry-After is admitted
	return b.refusal.err(left, func() *exchange.Error {
		e := exchange.Errorf(exchange.SSPBackoff, exchange.NotSent,
			"it asked for a pause with Retry-After, which lasts %v more; see ssps[].retry_after_max (%v) and ssps[].retry_after_share (%v)", left, time.Duration(b.max.Load()), b.share)
		e.RetryAfter = left
		return e
	})
}

// refusalStep is how exactly the error of a refused request says how long the pause still lasts.
const refusalStep = 100 * time.Millisecond

// left returns the remaining time of the pause, 0 for no pause.
func (b *backoff) left(now time.Duration) time.Duration {
	return max(0, time.Duration(b.until.Load())-now)
}

// observe counts a response to a client. It starts a pause and returns true if the response asks for
// one and the settings allow it. at is when the response arrived, and now is the same moment since the
// SSP was made. If several responses ask for pauses, the longest pause counts: all requests were sent
// before it began.
//
// A 429 or 503 may be meant for one client or for all clients. So it pauses the SSP only if more than
// share of the active groups of clients were asked for a pause recently, and a 429 only if enough of
// the recent responses were 429. With a share of 0, a single response pauses the SSP.
func (b *backoff) observe(res *exchange.Response, client rates.Group, at time.Time, now time.Duration) bool {
	longest := time.Duration(b.max.Load())
	if longest <= 0 {
		return false
	}
	var wait time.Duration
	asks := false
	if res.Status == 429 || res.Status == 503 {
		v, _ := syntax.FindField(res.Fields, "Retry-After")
		wait, asks = parseRetryAfter(v, at)
	}
	if b.share > 0 {
		b.recent.Record(now, client, res.Status == 429)
		b.askers.note(now, client, asks)
	}
	switch {
	case !asks:
		return false
	case b.share > 0 && !(b.askers.most(now, b.share) && (res.Status == 503 || b.throttled())):
		b.retryAfters.ignored.Add(1)
		return false
	}
	b.retryAfters.paused.Add(1)
	storeMax(&b.until, int64(now+min(wait, longest)))
	return true
}

// throttled reports whether enough of the SSP's responses in the last second were 429.
func (b *backoff) throttled() bool {
	_, throttled := b.recent.Tally()
	return throttled >= minThrottled && b.recent.Ratio(b.share, minThrottled) >= b.share
}

// askers knows which groups of clients got responses recently, and which of them got a response that
// asks for a pause. It is safe for concurrent use.
type askers struct {
	// When the group last got a response that asked for no pause (heard), and one that asked (asked), in ns;
	// 0 = never.
	heard, asked [rates.ClientGroups]atomic.Int64
}

// recently is how long a response shows that its client sends requests.
const recently = 10 * time.Second

// note notes a response to a client.
func (k *askers) note(now time.Duration, client rates.Group, asks bool) {
	at := &k.heard[client]
	if asks {
		at = &k.asked[client]
	}
	// Most calls write nothing, since all requests share this memory, and writes would slow down other cores.
	if was := at.Load(); was == 0 || int64(now)-was > int64(recently/100) {
		at.Store(max(1, int64(now)))
	}
}

// most reports whether more than share of the groups that got responses recently, or all of them, were asked
// for a pause.
func (k *askers) most(now time.Duration, share float64) bool {
	var all, asked rates.Groups
	is := func(at *atomic.Int64) bool { n := at.Load(); return n != 0 && int64(now)-n < int64(recently) }
	for g := range rates.ClientGroups {
		if is(&k.asked[g]) {
			asked.Add(rates.Group(g))
		}
		if is(&k.heard[g]) {
			all.Add(rates.Group(g))
		}
	}
	return asked.Most(all, share, rates.ClientGroups)
}

// limit sets the maximum of pauses, and shortens the current pause to it.
func (p *pause) limit(longest, now time.Duration) {
	p.max.Store(int64(longest))
	for latest := int64(now + longest); ; {
		was := p.until.Load()
		if was <= latest || p.until.CompareAndSwap(was, latest) {
			return
		}
	}
}

// maxRetryAfterSeconds is a day. A longer pause has no further effect, since retry_after_max is at
// most an hour.
const maxRetryAfterSeconds = 24 * 60 * 60

// parseRetryAfter returns the pause that the SSP asked for. v is the raw field value: whole seconds
// or an HTTP date, which is measured from now. ok is false if v is malformed, zero or in the past.
// RFC 9110, section 10.2.3.
func parseRetryAfter(v []byte, now time.Time) (wait time.Duration, ok bool) {
	if len(v) == 0 || len(v) > maxRetryAfterBytes {
		return 0, false
	}
	if !syntax.IsDigit(v[0]) {
		return untilHTTPDate(string(v), now)
	}
	seconds, ok := syntax.ParseNumber(v, maxRetryAfterSeconds)
	return time.Duration(seconds) * time.Second, ok && seconds > 0
}

// maxRetryAfterBytes is longer than any date.
const maxRetryAfterBytes = 64

// The forms of a date, the last two obsolete. RFC 9110, section 5.6.7.
var httpDates = [...]string{"Mon, 02 Jan 2006 15:04:05 GMT", time.RFC850, time.ANSIC}

func untilHTTPDate(v string, now time.Time) (time.Duration, bool) {
	for _, form := range httpDates {
		if t, err := time.Parse(form, v); err == nil {
			wait := min(t.Sub(now), maxRetryAfterSeconds*time.Second)
			return wait, wait > 0
		}
	}
	return 0, false
}

// storeMax stores n in v if it is larger.
func storeMax(v *atomic.Int64, n int64) {
	for was := v.Load(); n > was && !v.CompareAndSwap(was, n); was = v.Load() {
	}
}
