//go:build !race

package limits

import (
	"crypto/tls"
	"net"
	"net/http"
	"testing"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

// Each client has sent one request and has its response. TLS keeps its keys, a few kilobytes.
// HTTP/2 also keeps its tables.
func TestMemoryOfIdleClientsOverTLS(t *testing.T) {
	testsupport.Long(t)
	const idle = 1500
	for _, row := range []struct {
		name, settings string
		http2          bool
		ceiling        float64 // bytes for each client
	}{
		{"http/1.1", "", false, 7 << 10},
		{"http/1.1 with reduce_idle_memory", ", reduce_idle_memory: true", false, 7 << 10},
		{"h2", "", true, 10 << 10},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, e := e2e.StartSSP(t, sspsim.Options{}), e2e.NewAuthority(t)
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
			config := e.ClientConfig(nil)
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
			before := collected(ab)
			for range idle {
				ask()
			}
			// On a slow machine the client closes a connection if it notices 50 ms late that its
			// request is written; see net/http.maxWriteWaitBeforeConnReuse. Others take their place.
			for ab.Metric("adbuffer_client_connections") < idle {
				if ask(); len(transports) > 3*idle {
					t.Fatalf("fewer than %d of %d clients stay connected", idle, len(transports))
				}
			}
			awaitIdle(ab, before, idle, row.ceiling)
		})
	}
}
