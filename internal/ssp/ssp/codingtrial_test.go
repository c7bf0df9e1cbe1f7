package ssp

import (
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// An SSP that has refused the first 10 compressed requests with 400 or 415 is named, until it accepts one.
func TestAnSSPThatRefusesCompressedRequestsIsNamed(t *testing.T) {
	long := []byte(strings.Repeat("x", 2000))
	p := &fakePool{}
	c := newClient(t, p, func(o *Options) { o.Compress = CompressOptions{CodingZstd, 1024}; o.Breaker.Enabled = false })
	send := func(status int, body []byte) {
		p.steps = []step{response(status, "")}
		r := c.request(exchange.POST)
		r.Body = body
		c.do(r)
	}
	want := func(after string, want Coding) {
		t.Helper()
		testsupport.Equal(t, c.ssp.Snapshot().RefusedCoding, want, "after %[2]s the refused coding is %[1]q", after)
	}
	for _, status := range []int{400, 415, 415, 500, 415, 415, 415, 415, 404, 415, 415} {
		send(status, long)
		send(200, long[:1023])
	}
	want("9 refusals, beside requests that were not compressed", "")
	send(400, long)
	want("10 refusals", CodingZstd)
	c.ssp = c.ssp.With(options(func(o *Options) { o.Compress = CompressOptions{CodingGzip, 1024} }))
	want("a change to gzip", "")
	c.ssp = c.ssp.With(options(func(o *Options) { o.Compress = CompressOptions{CodingZstd, 1024} }))
	want("a change back", CodingZstd)
	send(204, long)
	want("a 204", "")
	for range 20 {
		send(415, long)
	}
	want("refusals after an accepted request", "")
}
