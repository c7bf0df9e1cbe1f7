//go:build !race

package header

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// hostileHeads are message heads of max_header_bytes whose parts might be costly.
func hostileHeads() map[string]string {
	const size = 16000
	fill := func(before, piece, after string) string {
		return before + strings.Repeat(piece, (size-len(before)-len(after))/len(piece)) + after
	}
	lines := func(n int, line func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(line(i) + "\r\n")
		}
		return b.String()
	}
	long := strings.Repeat("x", 100)
	options := make([]string, maxOptions)
	for i := range options {
		options[i] = fmt.Sprintf("%s%02d", long, i)
	}
	return map[string]string{
		"as many fields as may be":       lines(120, func(i int) string { return fmt.Sprintf("X-%d: %s", i, strings.Repeat("v", 120)) }),
		"as many short fields as may be": lines(120, func(int) string { return "A:" }),
		"fields that Connection names":   "Connection: " + strings.Join(options, ",") + "\r\n" + lines(120, func(i int) string { return long + "xx: 1" }),
		"a long list of options":         fill("Connection: ", "close,", "\r\n"),
		"a long list of empty options":   fill("Connection: ", ",", "\r\n"),
		"many Connection fields": lines(120, func(int) string {
			return "Connection: keep-alive, close, te, upgrade, host, trailer, expect, x-adbuffer-a"
		}),
		"addresses in X-Forwarded-For":    fill("X-Forwarded-For: ", "192.0.2.1,", "\r\n"),
		"IPv6 in X-Forwarded-For":         fill("X-Forwarded-For: ", "2001:db8:1:2:3:4:5:6,", "\r\n"),
		"nothing in X-Forwarded-For":      fill("X-Forwarded-For: ", " ,", "\r\n"),
		"blanks in X-Forwarded-For":       fill("X-Forwarded-For: 192.0.2.1,", " ", ",192.0.2.2\r\n"),
		"many X-Forwarded-For":            lines(120, func(int) string { return "X-Forwarded-For: 192.0.2.1, 192.0.2.2" }),
		"one long address":                fill("X-Forwarded-For: ", "1", "\r\n"),
		"addresses in X-Real-IP":          fill("X-Real-IP: ", "192.0.2.1,", "\r\n"),
		"almost addresses in X-Real-IP":   fill("X-Real-IP: ", "1.1.1.1.,", "\r\n"),
		"a word in X-Real-IP":             fill("X-Real-IP: ", "bad,", "\r\n"),
		"elements of Forwarded":           fill("Forwarded: ", "for=192.0.2.1,", "for=_x\r\n"),
		"parameters of Forwarded":         fill("Forwarded: ", "for=192.0.2.1;", "for=_x\r\n"),
		"a quoted string in Forwarded":    fill("Forwarded: for=\"", "x", "\"\r\n"),
		"many X-Device-IP":                lines(120, func(int) string { return "X-Device-IP: 192.0.2.1" }),
		"many X-Device-User-Agent":        lines(120, func(int) string { return "X-Device-User-Agent: " + long }),
		"adbuffers in Via":                fill("Via: ", "1.1 adbuffer-1,", "\r\n"),
		"almost adbuffers in Via":         fill("Via: ", "adbuffer", "\r\n"),
		"many Via":                        lines(120, func(int) string { return "Via: 1.1 adbuffer-0123456789abcdef" }),
		"cookies":                         lines(120, func(int) string { return "Cookie: a=" + long }),
		"names that are almost known":     lines(120, func(int) string { return "X-Forwarded-Fox_" + long + ": 1" }),
		"underscores":                     lines(120, func(int) string { return "X_Forwarded_For_" + long + ": 1" }),
		"names as those that are removed": lines(120, func(int) string { return "X-Internax: 1" }),
		"tabs in a value":                 fill("X-Tabs: a", "\t", "b\r\n"),
		"blanks around a value":           fill("X-Blanks: ", " ", "\r\n"),
	}
}

func TestTheCostOfAHostileHeadIsBounded(t *testing.T) {
	policy := NewPolicy(PolicyOptions{
		Via: thisVia, Pass: []string{"Cookie"}, Remove: []string{"X-Internal", "X-Internam"}, Set: []NameValue{{"X-Internap", "1"}}, Identity: Both,
	})
	dst := make([]byte, 0, 64<<10)
	var f RequestFields
	var id Identity
	cost := func(head string, truncate bool) func() time.Duration {
		raw := []byte(head)
		return func() time.Duration {
			took := testsupport.Shortest(func() {
				testsupport.NoError(t, f.Scan(raw))
				f.Adbuffers(thisVia)
				id.Resolve(&f, netip.MustParseAddr("10.0.0.1"), true, private, truncate)
				dst = policy.AppendRequest(dst[:0], &f, &id)
			})
			testsupport.True(t, len(dst) <= 2*len(raw)+4096, "%.60q: %d bytes are sent for %d", head, len(dst), len(raw))
			return took
		}
	}
	for _, truncate := range []bool{false, true} {
		common := testsupport.CommonInput{Bytes: len(adHead), Cost: cost(adHead, truncate)}
		for name, lines := range hostileHeads() {
			head := "Host: a\r\n" + lines + "\r\n"
			common.Hold(t, name, len(head), cost(head, truncate))
		}
	}
}

func TestTheCostOfHostileResponseFieldsIsBounded(t *testing.T) {
	const fields = 256
	policy := NewPolicy(PolicyOptions{Pass: []string{"Set-Cookie", "Alt-Svc"}})
	dst := make([]byte, 0, 64<<10)
	cost := func(lines string) func() time.Duration {
		raw := []byte(lines)
		return func() time.Duration {
			return testsupport.Shortest(func() {
				dst = policy.AppendResponse(dst[:0], raw, time.Now())
			})
		}
	}
	many := func(line func(i int) string) string {
		var b strings.Builder
		for i := range fields {
			b.WriteString(line(i) + "\r\n")
		}
		return b.String()
	}
	long := strings.Repeat("x", 50)
	options := make([]string, maxOptions)
	for i := range options {
		options[i] = fmt.Sprintf("%s%02d", long, i)
	}
	common := testsupport.CommonInput{Bytes: len(adResponse), Cost: cost(adResponse)}
	for name, lines := range map[string]string{
		"short fields":           many(func(int) string { return "A: 1" }),
		"cookies":                many(func(i int) string { return fmt.Sprintf("Set-Cookie: c%d=%s", i, long) }),
		"one cookie":             many(func(int) string { return "Set-Cookie: c=" + long }),
		"dates":                  many(func(int) string { return "Date: Sat, 21 Nov 2026 09:00:52 GMT" }),
		"dates under our name":   many(func(int) string { return "D~te: Sat, 21 Nov 2026 09:00:52 GMT" }),
		"types":                  many(func(int) string { return "Content-Type: text/" + long }),
		"servers":                many(func(int) string { return "Server: " + long }),
		"codings":                many(func(int) string { return "Content-Encoding: " + long }),
		"fields that are named":  "Connection: " + strings.Join(options, ",") + "\r\n" + many(func(int) string { return long + "xx: 1" }),
		"options":                "Connection: " + strings.Repeat("close,", 2500) + "\r\n",
		"Connection fields":      many(func(int) string { return "Connection: keep-alive, close, te, upgrade" }),
		"almost Connection":      many(func(int) string { return "Connectiom: 1" }),
		"Trailer":                many(func(int) string { return "Trailer: A, B, C" }),
		"Content-Length":         many(func(int) string { return "Content-Length: 1" }),
		"Transfer-Encoding":      many(func(int) string { return "Transfer-Encoding: chunked" }),
		"a long value":           "X-A: " + strings.Repeat("x", 16000) + "\r\n",
		"a long value of blanks": "X-A: a" + strings.Repeat(" ", 16000) + "\r\n",
	} {
		common.Hold(t, name, len(lines), cost(lines))
	}
}
