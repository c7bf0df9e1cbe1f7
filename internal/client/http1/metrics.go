package http1

import (
	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/wire/handshake"
)

// Descs describe the metrics of Collect.
var Descs metrics.Descs

var (
	descClients     = Descs.New("adbuffer_client_connections", "Open connections of clients.")
	descClientsMax  = Descs.New("adbuffer_client_connections_limit", "Connections of clients that may be open (server.max_connections, or fewer if the process may not open as many files).")
	descIdleDropped = Descs.New("adbuffer_client_connections_dropped_total", "Connections of clients that had been idle for the longest time, and were closed because server.max_connections was reached, or no further file could be opened.")
	descUnfinished  = Descs.New("adbuffer_client_connections_unfinished_dropped_total", "Connections of clients that were closed because server.max_connections was reached, while they waited for the rest of a PROXY header or TLS handshake (handshake), or of a message head (head).", "stage")
	descSent        = Descs.New("adbuffer_client_sent_bytes_total", "Bytes written to the sockets of clients' connections, TLS included.")
	descReceived    = Descs.New("adbuffer_client_received_bytes_total", "Bytes read from the sockets of clients' connections, TLS included.")
	descHandshakes  = Descs.New("adbuffer_client_tls_handshakes_total", "TLS handshakes with clients that succeeded, by whether they resumed a session, which takes far less CPU.", "resumed")
	descShaking     = Descs.New("adbuffer_client_tls_handshakes_in_progress", "Clients whose TLS handshake has begun and not ended. Many: they wait for CPU, or do not respond.")
	descsOfTLS      = handshake.NewDescs(&Descs, "adbuffer_client_tls", "clients")
	descHTTP2Errors = Descs.New("adbuffer_client_http2_errors_total", "Streams and connections that were reset or closed because the client violated HTTP/2.")
)

// Collect writes the series of clients' connections.
func (s *Server) Collect(to metrics.Sink) {
	to.Gauge(descClients, float64(s.open.Load()))
	to.Gauge(descClientsMax, float64(s.options().MaxConnections))
	to.Counter(descIdleDropped, s.idleDropped.Load())
	to.Counter(descUnfinished, s.clients.unfinished.handshakes.Load(), "handshake")
	to.Counter(descUnfinished, s.clients.unfinished.heads.Load(), "head")
	to.Counter(descSent, s.traffic.Sent())
	to.Counter(descReceived, s.traffic.Received())
	if s.tls != nil {
		full, resumed, _ := s.handshakes.Totals()
		to.Counter(descHandshakes, full, "false")
		to.Counter(descHandshakes, resumed, "true")
		descsOfTLS.Series(to, &s.handshakes)
		to.Gauge(descShaking, float64(s.handshaking.Load()))
	}
	to.Counter(descHTTP2Errors, s.http2Errors.Load())
}
