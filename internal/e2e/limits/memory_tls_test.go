//go:build !race

package limits

import (
	"crypto/tls"
	"net"
	"net/http"
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

// Each client has sent one request and has its response. TLS keeps its keys, a few kilobytes.
// HTTP/2 also keeps its tables.
func TestMemoryOfIdleClientsOverTLS(t *testing.T) {
	const idle = 1500
	for _, row := range []struct {
		name, settings string
		http2          bool
		ceiling        float64 // bytes for each client
	}{
		{"http/1.1", "", false, 20 << 10},
		{"http/1.1 with reduce_idle_memory", ", reduce_idle_memory: true", false, 12 << 10},
		{"h2", "", true, 16 << 10},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, e := e2e.StartSSP(t, sspsim.Options{}), e2e.NewListener(t)
			ab := e2e.Start(t, e.ServerSection(", idle_timeout: 10m, max_connections: 10000"+row.settings)+e2e.Single(s.URL()))
			protocols := new(http.Protocols)
			protocols.SetHTTP1(!row.http2)
			protocols.SetHTTP2(row.http2)
			transports := make([]*http.Transport, 0, idle)
			defer func() {
				for _, tr := range transports {
					tr.CloseIdleConnections()
				}
			}()
			config := e.TLSConfig()
			config.ClientSessionCache = tls.NewLRUClientSessionCache(1) // this saves CPU; memory is the same
			ask := func() {
				tr := &http.Transport{TLSClientConfig: config, Protocols: protocols, DialContext: (&net.Dialer{}).DialContext}
				transports = append(transports, tr)
				res, err := (&http.Client{Transport: tr}).Head("https://" + ab.TrafficAddr + "/fillbuffer?pub=1")
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
			}
			for range 50 { // buffers and pools are as in service
				ask()
			}
			before := resident(ab)
			for range idle {
				ask()
			}
			ab.WantMetric(idle+50, "adbuffer_client_connections")
			each := func() float64 { return (resident(ab) - before) / idle }
			soon := each()
			var late float64
			began := time.Now()
			for late = each(); late > row.ceiling && time.Since(began) < testsupport.Patience; late = each() {
				time.Sleep(500 * time.Millisecond)
			}
			t.Logf("%s: %.0f bytes for each of %d idle clients at once, %.0f after %v", row.name, soon, idle, late, time.Since(began).Round(time.Second))
			if late > row.ceiling {
				t.Errorf("%.0f bytes for each idle client, want at most %.0f", late, row.ceiling)
			}
		})
	}
}
