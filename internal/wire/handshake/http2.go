package handshake

import (
	"crypto/tls"
	"slices"
)

// HTTP2Suites are Go's TLS 1.2 suites that RFC 9113, appendix A, does not prohibit: an ephemeral key
// exchange and an AEAD cipher. All suites of TLS 1.3 are allowed.
var HTTP2Suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// AllowsHTTP2 reports, after the handshake, whether HTTP/2 may be used over the connection. RFC 9113, section 9.2.
func AllowsHTTP2(state *tls.ConnectionState) bool {
	return state.Version >= tls.VersionTLS13 ||
		state.Version == tls.VersionTLS12 && slices.Contains(HTTP2Suites, state.CipherSuite)
}

// OfferAllowsHTTP2 reports, during the handshake, whether AllowsHTTP2 can be true after it: whether the client offers
// TLS 1.3 or one of HTTP2Suites.
func OfferAllowsHTTP2(hello *tls.ClientHelloInfo) bool {
	return slices.Contains(hello.SupportedVersions, tls.VersionTLS13) ||
		slices.ContainsFunc(hello.CipherSuites, func(s uint16) bool { return slices.Contains(HTTP2Suites, s) })
}
