//go:build !race

package header

import (
	"net/netip"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/syntax"
)

func TestTheHotPathAllocatesNothing(t *testing.T) {
	raw := []byte(adHead)
	device := []byte(head("X-Forwarded-For: [2001:db8::1]:80, 192.0.2.1", "X-Device-IP: 2001:db8::1", "X-Real-IP: 192.0.2.1", "Forwarded: for=192.0.2.1",
		"Connection: X-Hop, close", "X-Hop: 1", "Cookie: a=b", "User-Agent: phone", "X-Device-User-Agent: tv", "X-Openrtb-Version: 2.5", "Via: 1.0 fred, 1.1 adbuffer-1", "Via: 2.0 adbuffer-2"))
	f := RequestFields{TimeoutName: "X-Adbuffer-Timeout-Ms", IDName: "X-Request-Id"}
	var id Identity
	dst := make([]byte, 0, 4096)
	peer := netip.MustParseAddr("::ffff:10.0.0.1")
	simple := NewPolicy(PolicyOptions{Via: thisVia, RequestID: "X-Request-Id", SendRequestID: true})
	full := NewPolicy(PolicyOptions{
		Pass: []string{"Cookie"}, Remove: []string{"X-Internal"}, Set: []NameValue{{"X-Openrtb-Version", "2.6"}}, Identity: Both, Via: thisVia,
	})
	lines := []byte(adResponse + "Connection: X-Hop\r\nSet-Cookie: a=b\r\nX-Hop: 1\r\n")

	for _, tt := range []struct {
		name string
		run  func()
	}{
		{"a common request", func() {
			testsupport.NoError(t, f.Scan(raw))
			n, _ := f.Adbuffers(thisVia)
			testsupport.MustTrue(t, n == 0, "there are adbuffers before this one")
			f.SetRequestID(true, time.Now())
			id.Resolve(&f, loopback, true, private, false)
			dst = simple.AppendRequest(dst[:0], &f, &id)
			f.Reset()
		}},
		{"a request with everything", func() {
			testsupport.NoError(t, f.Scan(device))
			n, _ := f.Adbuffers(thisVia)
			testsupport.MustTrue(t, n == 2, "the adbuffers before this one are not counted")
			id.Resolve(&f, peer, true, private, true)
			dst = full.AppendRequest(dst[:0], &f, &id)
			v, ok := f.Lookup("X-Hop")
			testsupport.MustTrue(t, ok && len(v) == 1, "X-Hop is gone")
		}},
		{"a response", func() {
			dst = simple.AppendResponse(dst[:0], lines, time.Now())
		}},
		{"adbuffer's own response", func() {
			dst = AppendDate(dst[:0], time.Now())
		}},
		{"reading lines", func() {
			n := 0
			for name, value := range syntax.Fields(lines) {
				n += len(name) + len(value)
			}
			_, ok := syntax.FindField(lines, "vary")
			testsupport.MustTrue(t, ok && n != 0, "no lines")
		}},
	} {
		allocs := testing.AllocsPerRun(1000, tt.run)
		testsupport.True(t, allocs == 0, "%s: %v allocations", tt.name, allocs)
	}
}
