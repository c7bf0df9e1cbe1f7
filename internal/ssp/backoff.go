package ssp

import (
	"fmt"
	"sync/atomic"
	"time"

	"adbuffer/internal/httpsyntax"
	"adbuffer/internal/upstream"
)

// backoff keeps requests from an SSP that asked for a pause. Times are since
// the SSP was made. It is safe for concurrent use.
type backoff struct {
	max   time.Duration // retry_after_max; 0 = no pause ever
	share float64       // retry_after_share; 0 = a single 429 pauses
	*pause
	retryAfters *retryAfters
}

// pause is what a backoff remembers.
type pause struct {
	until    atomic.Int64 // ns
	throttle throttle
}

// retryAfters count the responses that asked for a pause with Retry-After.
type retryAfters struct{ paused, ignored atomic.Uint64 }

// minThrottled is how many responses of the last second must have been 429
// before one of them pauses the SSP, where share is not 0.
const minThrottled = 3

func (b *backoff) admit(now time.Duration) *upstream.Error {
	left := b.left(now)
	if left == 0 {
		return nil
	}
	return &upstream.Error{
		Outcome: upstream.SSPBackoff, Progress: upstream.NotSent,
		Detail: fmt.Sprintf("it asked for a pause with Retry-After, of which %v are left; see ssps[].retry_after_max (%v) and ssps[].retry_after_share (%v)", left.Round(time.Millisecond), b.max, b.share),
	}
}

// left is how long the pause still is, 0 where there is none.
func (b *backoff) left(now time.Duration) time.Duration {
	if b.max <= 0 {
		return 0 // a predecessor, which had a maximum, may still start one
	}
	until := time.Duration(b.until.Load())
	return max(0, until-now)
}

// heed counts a response, starts a pause where the response asks for one and
// may have it, and reports whether it does. at is when the response came, by the
// wall clock, and now the same since the SSP was made. Of responses that ask for
// several pauses, the longest counts: all were sent before it began.
//
// A 429 tells one client to slow down as often as it tells all of them. So it
// pauses the SSP for all clients only where the SSP says it to many requests.
func (b *backoff) observe(a *upstream.Response, at time.Time, now time.Duration) bool {
	if b.max <= 0 {
		return false
	}
	if b.share > 0 {
		b.throttle.record(now, a.Status == 429)
	}
	if a.Status != 429 && a.Status != 503 {
		return false
	}
	v, ok := httpsyntax.FindField(a.Fields, "Retry-After")
	if !ok {
		return false
	}
	wait, ok := parseRetryAfter(v, at)
	if !ok {
		return false
	}
	if a.Status == 429 && !b.throttled(now) {
		b.retryAfters.ignored.Add(1)
		return false
	}
	b.retryAfters.paused.Add(1)
	until := int64(now + min(wait, b.max))
	for {
		was := b.until.Load()
		if until <= was || b.until.CompareAndSwap(was, until) {
			return true
		}
	}
}

// throttled reports whether enough of the SSP's responses in the last second
// were 429.
func (b *backoff) throttled(now time.Duration) bool {
	if b.share <= 0 {
		return true
	}
	responses, throttled := b.throttle.tally(now)
	return throttled >= minThrottled && float64(throttled) >= b.share*float64(responses)
}

// shorten ends a pause that is longer than may be now.
func (b *backoff) shorten(now time.Duration) {
	for latest := int64(now + b.max); ; {
		was := b.until.Load()
		if was <= latest || b.until.CompareAndSwap(was, latest) {
			return
		}
	}
}

// maxRetryAfterSeconds is a day: longer pauses mean no more than that, since
// retry_after_max is never above an hour.
const maxRetryAfterSeconds = 24 * 60 * 60

// parseRetryAfter returns how long the upstream asked us to stay away. v is the
// raw field value: whole seconds or an HTTP date, which is measured from now.
// ok is false if v is malformed, zero or already past. RFC 9110, section
// 10.2.3.
func parseRetryAfter(v []byte, now time.Time) (wait time.Duration, ok bool) {
	if len(v) == 0 || len(v) > maxRetryAfterBytes {
		return 0, false
	}
	if !httpsyntax.IsDigit(v[0]) {
		return untilHTTPDate(string(v), now)
	}
	seconds, ok := httpsyntax.ParseNumber(v, maxRetryAfterSeconds)
	return time.Duration(seconds) * time.Second, ok && seconds > 0
}

// maxRetryAfterBytes is more than any date has.
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
