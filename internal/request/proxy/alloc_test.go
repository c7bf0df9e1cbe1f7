//go:build !race

package proxy_test

import (
	"bufio"
	"testing"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/wire/tracing"

	"adbuffer/internal/test/testsupport"
)

// This counts allocations of the whole process for a forwarded request, including a client and an
// SSP that allocate almost nothing. Over cleartext there are none; over TLS crypto/tls allocates
// once at each end.
func TestAllocationsOfForwardingByProtocol(t *testing.T) {
	cleartext := func(m *modeProxy) func() {
		c := m.dial()
		r := bufio.NewReader(c)
		return func() { exchangeOn(t, c, r) }
	}
	tracer, err := tracing.New(tracing.Options{Endpoint: "http://127.0.0.1:1"})
	testsupport.NoError(t, err)
	defer tracer.Close(t.Context())
	for _, row := range []struct {
		name    string
		change  func(*proxy.Options, *route.Route)
		client  func(m *modeProxy) func()
		ceiling float64
	}{
		{"cleartext", nil, cleartext, 0},
		{"tracing, not sampled", func(o *proxy.Options, _ *route.Route) { o.Tracer = tracer }, cleartext, 0},
		{"sample, not kept", func(o *proxy.Options, _ *route.Route) {
			sampling(o)
			o.Sample.Requests = 1
		}, cleartext, 0},
		{"TLS", overTLS, func(m *modeProxy) func() {
			c := m.dialTLS("http/1.1")
			r := bufio.NewReader(c)
			return func() { exchangeOn(t, c, r) }
		}, 4},
		{"HTTP/2", overTLS, func(m *modeProxy) func() {
			c := m.newStreamClient()
			return func() {
				c.request()
				c.readResponses(t, 1)
			}
		}, 3},
		{"HTTP/2 in cleartext", h2c, func(m *modeProxy) func() {
			c := newStreamClient(m.dial())
			return func() {
				c.request()
				c.readResponses(t, 1)
			}
		}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			send := row.client(forwarder(t, row.change))
			for range 500 { // this fills the pools
				send()
			}
			got := testing.AllocsPerRun(2000, send)
			t.Logf("%.1f allocations", got)
			testsupport.True(t, got <= row.ceiling, "%.1f allocations for each request, want at most %v", got, row.ceiling)
		})
	}
}
