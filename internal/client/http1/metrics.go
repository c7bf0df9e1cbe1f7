package http1

import "adbuffer/internal/machine/metrics"

// Descs describe the metrics of Collect.
var Descs metrics.Descs

var (
	descClients     = Descs.New("adbuffer_client_connections", "Open connections of clients.")
	descClientsMax  = Descs.New("adbuffer_client_connections_limit", "Connections of clients that may be open (server.max_connections, or fewer if the process may not open as many files).")
	descAccepted    = Descs.New("adbuffer_client_connections_accepted_total", "Connections of clients that were accepted.")
	descPerConn     = Descs.New("adbuffer_client_requests_per_connection", "Requests that a client's connection had carried when it ended. Connections without a request are not counted.")
	descIdle        = Descs.Dropped("idle")
	descHandshake   = Descs.Dropped("handshake")
	descHead        = Descs.Dropped("head")
	descVersions    = Descs.New("adbuffer_client_tls_handshakes_by_version_total", "TLS handshakes with clients that succeeded, by TLS version.", "version")
	descTLSErrors   = Descs.ClientErrors("tls")
	descHTTP2Errors = Descs.ClientErrors("http2")
)

// Collect writes the series of clients' connections.
func (s *Server) Collect(to metrics.Sink) {
	to.Gauge(descClients, float64(s.open.Load()))
	to.Gauge(descClientsMax, float64(s.options().MaxConnections))
	to.Counter(descAccepted, s.accepted.Load())
	to.Histogram(descPerConn, s.reuse.requests)
	to.Counter(descIdle, s.idleDropped.Load())
	to.Counter(descHandshake, s.clients.unfinished.handshakes.Load())
	to.Counter(descHead, s.clients.unfinished.heads.Load())
	if s.tls != nil {
		s.versions.Series(to, descVersions)
		s.failures.Series(to, descTLSErrors)
	}
	to.Counter(descHTTP2Errors, s.http2Errors.Load(), "violation")
}
