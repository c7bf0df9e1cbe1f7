package ssp

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

func TestRetryAfterIsParsedInAllItsForms(t *testing.T) {
	now := time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
	for _, c := range []struct {
		v    string
		want time.Duration
		ok   bool
	}{
		{"1", time.Second, true},
		{"120", 2 * time.Minute, true},
		{"007", 7 * time.Second, true},
		{"0", 0, false},
		{"000", 0, false},
		{"99999999999999999999999999999999999999", 24 * time.Hour, true},
		{strings.Repeat("9", 64), 24 * time.Hour, true},
		{strings.Repeat("9", 65), 0, false},
		{"", 0, false}, {"-1", 0, false}, {"+1", 0, false}, {"1.5", 0, false}, {"1s", 0, false}, {"1 ", 0, false}, {"1, 2", 0, false},
		{"Sat, 21 Nov 2026 09:30:10 GMT", 10 * time.Second, true},
		{"Saturday, 21-Nov-26 09:30:10 GMT", 10 * time.Second, true},
		{"Sat Nov 21 09:30:10 2026", 10 * time.Second, true},
		{"Sat, 21 Nov 2026 09:30:00 GMT", 0, false},
		{"Sat, 21 Nov 2026 09:29:59 GMT", 0, false},
		{"Sat, 21 Nov 9999 09:30:10 GMT", 24 * time.Hour, true},
		{"Sat, 21 Nov 2026 09:30:10 CET", 0, false},
		{"soon", 0, false},
	} {
		got, ok := parseRetryAfter([]byte(c.v), now)
		testsupport.True(t, ok == c.ok && (!ok || got == c.want), "%q: %v, %v; want %v, %v", c.v, got, ok, c.want, c.ok)
	}
}

// FuzzRetryAfter compares with strconv and net/http.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"1", "0", "86401", "Sat, 21 Nov 2026 09:30:10 GMT", "Saturday, 21-Nov-26 09:30:10 GMT", "Sat Nov 21 09:30:10 2026", "1e3", "٣"} {
		f.Add([]byte(seed))
	}
	now := time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, v []byte) {
		got, ok := parseRetryAfter(v, now)
		testsupport.MustTrue(t, !ok || got > 0 && got <= 24*time.Hour, "%q is %v", v, got)
		if len(v) > maxRetryAfterBytes {
			return
		}
		if n, err := strconv.ParseUint(string(v), 10, 32); err == nil {
			want := min(time.Duration(n)*time.Second, 24*time.Hour)
			testsupport.MustTrue(t, ok == (want > 0) && (!ok || got == want), "%q is %v, %v; strconv says %v", v, got, ok, want)
		}
		if at, err := http.ParseTime(string(v)); err == nil {
			want := min(at.Sub(now), 24*time.Hour)
			testsupport.MustTrue(t, ok == (want > 0) && (!ok || got == want), "%q is %v, %v; net/http says %v", v, got, ok, want)
		}
	})
}

func TestRetryAfterPausesTheSSP(t *testing.T) {
	for _, status := range []int{429, 503} {
		testsupport.RunBubble(t, strconv.Itoa(status), func(t *testing.T) {
			p := &fakePool{steps: []step{response(status, "busy", "retry-after: 2"), fill()}}
			c := newClient(t, p, nil)
			res := c.get()
			testsupport.MustTrue(t, res.status == status && res.body == "busy", "the response is %d %q (%v), want the SSP's own", res.status, res.body, res.err)
			refused := c.get().want(exchange.SSPBackoff)
			refused.wantDetail("Retry-After", "2s", "retry_after_max", "30s")
			after := exchange.AsError(refused.err).RetryAfter
			testsupport.True(t, after == 2*time.Second, "the client may come back after %v, want 2s", after)
			time.Sleep(2*time.Second - 1)
			c.get().want(exchange.SSPBackoff)
			testsupport.Equal(t, c.ssp.Snapshot().BackoffSeconds, 1e-9, "%v s of the pause are left, want 1 ns")
			time.Sleep(time.Nanosecond)
			c.get().want(exchange.Fill)
			c.wantSent(p, 2)
			c.wantIdle()
		})
	}
}

func TestPauseIsNoLongerThanRetryAfterMax(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		date := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
		c := newClient(t, &fakePool{steps: []step{response(503, "", "Retry-After: "+date), fill()}}, nil)
		c.get().want(exchange.ServerError)
		time.Sleep(30*time.Second - 1)
		c.get().want(exchange.SSPBackoff)
		time.Sleep(time.Nanosecond)
		c.get().want(exchange.Fill)
	})
}

func TestShorterPauseDoesNotShortenALongerOne(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{after(msec, response(503, "", "Retry-After: 10")), after(2*msec, response(503, "", "Retry-After: 1")), fill()}}
		c := newClient(t, p, nil)
		results := c.start(2)
		for range 2 {
			(<-results).want(exchange.ServerError)
		}
		time.Sleep(9 * time.Second)
		c.get().want(exchange.SSPBackoff)
	})
}

func TestResponsesThatDoNotPause(t *testing.T) {
	for _, c := range []struct {
		name string
		step step
		max  time.Duration
	}{
		{"retry_after_max 0", response(503, "", "Retry-After: 10"), 0},
		{"no field", response(503, ""), time.Hour},
		{"a malformed field", response(429, "", "Retry-After: soon"), time.Hour},
		{"a date that has passed", response(429, "", "Retry-After: Sun, 06 Nov 1994 08:49:37 GMT"), time.Hour},
		{"another status", response(500, "", "Retry-After: 10"), time.Hour},
		{"a redirect", response(301, "", "Retry-After: 10"), time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := newClient(t, &fakePool{steps: []step{c.step, fill()}}, func(o *Options) { o.RetryAfterMax = c.max })
			cl.get()
			cl.get().want(exchange.Fill)
		})
	}
}
