package logs

import (
	"bytes"
	"flag"
	"net/netip"
	"os"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

var update = flag.Bool("update", false, "write the golden lines")

const us = time.Microsecond

// summary is an exchange that waited for a new connection with TLS.
func summary(status int) exchange.Summary {
	at := time.Unix(1_700_000_000, 0)
	return exchange.Summary{
		Status: status, Attempts: 2, Protocol: exchange.HTTP2, Endpoint: "rtb.openx.example:443", Peer: netip.MustParseAddrPort("192.0.2.7:443"),
		Times: exchange.Times{
			Queued: at, Acquired: at.Add(12_345 * us), FirstByte: at.Add(30_000 * us), Done: at.Add(31_000 * us), DNS: 1001 * us, TCP: 2002 * us, TLS: 5_499 * us,
		},
	}
}

// records are one of each kind; the golden file has their lines.
func records() []*Record {
	reused := summary(200)
	reused.Reused, reused.Attempts, reused.Protocol = true, 1, exchange.HTTP1
	reused.Times.DNS, reused.Times.TCP, reused.Times.TLS = 0, 0, 0
	reused.Times.Acquired = reused.Times.Queued.Add(us / 10)
	none := exchange.Summary{Times: exchange.Times{Queued: reused.Times.Queued}}
	return []*Record{
		{
			ID: "0198c0de-0000-7000-8000-000000000001", Method: "GET", Path: "/fillbuffer", Route: "default", Client: "203.0.113.0", Status: 200,
			Outcome: exchange.Fill, Source: "ssp/openx", SSP: "openx", Exchange: reused, BytesOut: 1024, Total: 31_200 * us, Reason: Sampled,
		},
		{
			ID: "edge-1", Method: "POST", Path: Visible([]byte("/fill\n{\"level\":\"error\"}\x9b2J")), Route: "default", Client: "2001:db8::", Status: 503,
			Outcome: exchange.ServerError, Source: "ssp/openx", SSP: "openx", Exchange: summary(503), BytesIn: 512, BytesOut: 7, Total: 1_500_000 * us, Reason: Slow,
		},
		{
			ID: "edge-2", Method: "GET", Path: "/fillbuffer", Route: "default", Status: 503, Outcome: exchange.PendingFull, Source: "proxy/pending_full", SSP: "openx",
			Deadline: 95_000 * us, DeadlineFrom: "deadline.default", IgnoredTmax: "encoding",
			Exchange: none, Total: 40 * us, Reason: Failure, Error: "256 of 256 places in use\n\"forged\":1\u2028\x1b[2J",
		},
		{
			ID: "edge-3", Method: "GET", Path: "/all", Route: "auction", Client: "203.0.113.9", Status: 200, Outcome: exchange.Merged, Source: "proxy/merged", BytesOut: 99,
			Total: 60_000 * us, Reason: Sampled, Legs: []Leg{
				{SSP: "a", Outcome: exchange.Fill, Exchange: reused, Took: 31_000 * us},
				{SSP: "b", Outcome: exchange.Deadline, Exchange: summary(0), Took: 60_000 * us, Failed: true, Err: exchange.Errorf(exchange.Deadline, exchange.MaybeProcessed, "the deadline was 60ms")},
				{SSP: "c", Outcome: exchange.Cancelled, Took: 60_001 * us},
			},
		},
		{ID: "edge-4", Route: "none", Client: "203.0.113.9", Status: 503, Unreadable: "twice", Outcome: exchange.Overloaded, Source: "proxy/overloaded", Reason: Failure, Error: "see server.max_connections"},
		{Method: "GET", Path: "/fillbuffer", Route: "default", Outcome: exchange.ClientGone, SSP: "openx", Exchange: none, Total: 7000 * us, Reason: Slow},
	}
}

// The lines are a contract, which deploy/logs/README.md lists: dashboards and parsers read them.
func TestTheLinesAreAsDocumented(t *testing.T) {
	var out bytes.Buffer
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "msg"}), zapcore.AddSync(&out), zap.InfoLevel))
	l := NewRequestLog(log, NewLimiter(log))
	for _, r := range records() {
		l.Write(r, outputs{reason: r.Reason})
	}
	const golden = "testdata/lines.json"
	if *update {
		testsupport.NoError(t, os.WriteFile(golden, out.Bytes(), 0o600))
	}
	want, err := os.ReadFile(golden)
	testsupport.NoError(t, err)
	testsupport.True(t, bytes.Equal(out.Bytes(), want), "the lines are\n%swant\n%s", out.Bytes(), want)
	for _, c := range out.Bytes() {
		testsupport.True(t, c == '\n' || c >= ' ' && c != 0x7f, "the lines have the byte %#x", c)
	}
	if n := bytes.Count(out.Bytes(), []byte{'\n'}); n != len(records()) {
		t.Errorf("%d records made %d lines", len(records()), n)
	}
}
