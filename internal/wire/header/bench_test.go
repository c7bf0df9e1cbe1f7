package header

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// adHead is the head of a common ad request: 12 fields, about 600 bytes.
const adHead = "Host: ads.example.com\r\n" +
	"User-Agent: Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148\r\n" +
	"Accept: */*\r\n" +
	"Accept-Language: en-GB,en;q=0.9\r\n" +
	"Accept-Encoding: gzip, deflate, br\r\n" +
	"Referer: https://publisher.example/news/2026/11/some-article-with-a-long-title.html\r\n" +
	"X-Forwarded-For: 203.0.113.7, 198.51.100.23\r\n" +
	"X-Forwarded-Proto: https\r\n" +
	"X-Openrtb-Version: 2.6\r\n" +
	"X-Request-Id: 7f3e0a52-5b0c-4c9e-9a07-0d2c5a3f7e11\r\n" +
	"Cookie: uid=8a6d1c0e5f; consent=CPzq4sAPzq4sAAGABCENDXCsAP_gAAAAAAwIAAAAAAAA; session=1\r\n" +
	"Connection: keep-alive\r\n" +
	"\r\n"

// adResponse is the fields of a common response.
const adResponse = "Server: nginx\r\n" +
	"Date: Sat, 21 Nov 2026 09:00:52 GMT\r\n" +
	"Content-Type: application/json\r\n" +
	"Content-Length: 1024\r\n" +
	"Connection: keep-alive\r\n" +
	"Cache-Control: no-store\r\n" +
	"X-Bid-Version: 2.6\r\n" +
	"Vary: Accept-Encoding\r\n"

var (
	loopback = netip.MustParseAddr("127.0.0.1")
	private  = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
)

func BenchmarkRequest(b *testing.B) {
	raw := []byte(adHead)
	var f RequestFields
	var id Identity
	f.TimeoutName = "X-Adbuffer-Timeout-Ms"
	dst := make([]byte, 0, 4096)
	report := func(b *testing.B) {
		b.ReportAllocs()
		b.ReportMetric(float64(strings.Count(adHead, "\r\n")-1), "fields")
		b.ReportMetric(float64(len(raw)), "bytes")
	}
	b.Run("Scan", func(b *testing.B) {
		for b.Loop() {
			if err := f.Scan(raw); err != nil {
				b.Fatal(err)
			}
		}
		report(b)
	})
	b.Run("Resolve", func(b *testing.B) {
		for b.Loop() {
			id.Resolve(&f, loopback, true, private, false)
		}
		report(b)
	})
	plainPolicy := NewPolicy(PolicyOptions{Via: thisVia})
	for _, bench := range []struct {
		name string
		p    *Policy
	}{
		{"AppendRequest", plainPolicy},
		{"AppendRequestConfigured", NewPolicy(PolicyOptions{
			Pass: []string{"Cookie"}, Remove: []string{"X-Internal"}, Set: []NameValue{{"X-Openrtb-Version", "2.6"}}, Identity: Both,
		})},
		{"AppendRequestNoIdentity", NewPolicy(PolicyOptions{Identity: None})},
	} {
		b.Run(bench.name, func(b *testing.B) {
			for b.Loop() {
				dst = bench.p.AppendRequest(dst[:0], &f, &id)
			}
			report(b)
		})
	}
	b.Run("Whole", func(b *testing.B) {
		for b.Loop() {
			if err := f.Scan(raw); err != nil {
				b.Fatal(err)
			}
			id.Resolve(&f, loopback, true, private, false)
			dst = plainPolicy.AppendRequest(dst[:0], &f, &id)
		}
		report(b)
	})
}

func BenchmarkResponse(b *testing.B) {
	p, lines, dst := NewPolicy(PolicyOptions{}), []byte(adResponse), make([]byte, 0, 4096)
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		dst = p.AppendResponse(dst[:0], lines, now)
	}
}
