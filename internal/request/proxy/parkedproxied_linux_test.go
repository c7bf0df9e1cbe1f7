package proxy_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/client/listen"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

// A client behind the PROXY protocol keeps the address of its header while it is parked: before its
// first request, and between two, with TLS and HTTP/2 behind the header too.
func TestParkedClientsKeepTheAddressOfTheirPROXYHeader(t *testing.T) {
	testsupport.Long(t)
	headers := map[string]string{
		"203.0.113.9":  "PROXY TCP4 203.0.113.9 192.0.2.1 4000 443\r\n",
		"203.0.113.10": "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xcb\x00\x71\x0a\xc0\x00\x02\x01\x0f\xa0\x01\xbb",
	}
	for _, row := range []struct {
		name       string
		tls, http2 bool
	}{{"cleartext", false, false}, {"HTTP/2 in cleartext", false, true}, {"TLS", true, false}, {"HTTP/2", true, true}} {
		t.Run(row.name, func(t *testing.T) {
			change := h2c
			if row.tls {
				change = overTLS
			}
			m := newModeProxy(t, route.Single, parksMany(change, time.Hour), bidder{name: "a", handler: func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, r.Header.Get("X-Forwarded-For"))
			}})
			m.serveBehindPROXYHeaders()
			for client, header := range headers {
				open := 0
				dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
					c, err := new(net.Dialer).DialContext(ctx, network, addr)
					if err != nil {
						return nil, err
					}
					if _, err := io.WriteString(c, header); err != nil {
						return nil, err
					}
					if row.tls {
						protocol := "http/1.1"
						if row.http2 {
							protocol = "h2"
						}
						over := tlsOver(c, protocol)
						if err := over.HandshakeContext(ctx); err != nil {
							return nil, err
						}
						c = over
					}
					open++
					m.await(float64(open), openClients, "")
					m.awaitParked()
					return c, nil
				}
				protocols := new(http.Protocols)
				protocols.SetHTTP1(!row.http2)
				protocols.SetHTTP2(row.http2 && row.tls)
				protocols.SetUnencryptedHTTP2(row.http2 && !row.tls)
				transport := &http.Transport{DialContext: dial, DialTLSContext: dial, Protocols: protocols}
				url := m.url
				if row.tls {
					url = m.https("")
				}
				for range 3 {
					res, err := (&http.Client{Transport: transport}).Post(url+"/fill", "text/plain", strings.NewReader("body"))
					testsupport.NoError(t, err)
					body, err := io.ReadAll(res.Body)
					res.Body.Close()
					testsupport.True(t, string(body) == client && err == nil && (res.ProtoMajor == 2) == row.http2, "over %s the SSP received %q, want %s; %v", res.Proto, body, client, err)
					m.awaitParked()
				}
				testsupport.Equal(t, open, 1, "%d connections for three requests")
				transport.CloseIdleConnections()
				m.await(0, openClients, "")
			}
		})
	}
}

// serveBehindPROXYHeaders makes m.url a listener whose connections begin with a PROXY header.
func (m *modeProxy) serveBehindPROXYHeaders() {
	m.t.Helper()
	sockets, err := listen.Open(listen.Options{Network: "tcp", Address: "127.0.0.1:0"}, listen.Options{Network: "tcp", Address: "127.0.0.1:0"}, zap.NewNop())
	testsupport.NoError(m.t, err)
	sockets.Traffic.Trust([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, time.Minute)
	served := make(chan error, 1)
	go func() { served <- m.p.Serve(sockets.Traffic) }()
	m.t.Cleanup(func() {
		m.p.Drain(context.Background())
		sockets.Close()
		if err := <-served; err != nil {
			m.t.Error(err)
		}
	})
	m.listeners++
	m.awaitParked()
	m.url = "http://" + sockets.Traffic.Addr().String()
}
