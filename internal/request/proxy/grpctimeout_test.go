package proxy_test

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

// The SSP of a gRPC call gets the time that is left of its deadline, in place of the client's field. In
// any other request the field is ordinary.
func TestTheSSPOfAGRPCCallIsToldTheTimeThatIsLeft(t *testing.T) {
	ssp := newRawSSP(t, func(string) string { return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" })
	m := newModeProxy(t, route.Single, func(o *proxy.Options, _ *route.Route) {
		o.Deadline = proxy.DeadlineOptions{Default: 30 * time.Second, Max: 30 * time.Second, Header: "X-Adbuffer-Timeout-Ms", Reserve: 5 * time.Millisecond}
	}, bidder{name: "a", addr: ssp.addr})
	line := regexp.MustCompile(`(?i)grpc-timeout: (.*)\r\n`)
	for _, row := range []struct {
		fields []string
		most   int // milliseconds; 0: the client's field crosses
	}{
		{[]string{"Content-Type: application/grpc", "grpc-timeout: 20S", "Content-Length: 0"}, 19_995},
		{[]string{"Content-Type: application/grpc+proto", "Grpc-Timeout: 99999999H", "Content-Length: 0"}, 29_995},
		{[]string{"Content-Type: application/grpc", "grpc-timeout: 20S", "X-Adbuffer-Timeout-Ms: 10000", "Content-Length: 0"}, 9_995},
		{[]string{"Content-Type: text/plain", "grpc-timeout: 20S", "Content-Length: 0"}, 0},
	} {
		m.do("POST", "/fill", row.fields...)
		at := ssp.last()
		found := line.FindAllStringSubmatch(at, -1)
		testsupport.MustEqual(t, len(found), 1, "%[2]q: %[1]d fields in %[3]q", row.fields, at)
		value := found[0][1]
		if row.most == 0 {
			testsupport.Equal(t, value, "20S", "%[2]q: %[1]s", row.fields)
			continue
		}
		ms, err := strconv.Atoi(value[:len(value)-1])
		testsupport.True(t, err == nil && value[len(value)-1] == 'm' && ms > 0 && ms <= row.most, "%q: the SSP is told %q, want at most %dm", row.fields, value, row.most)
	}
	m.do("POST", "/fill", "Content-Type: application/grpc", "Content-Length: 0")
	at := ssp.last()
	testsupport.True(t, !line.MatchString(at), "a call without a timeout has one at the SSP: %q", at)
}
