package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"strings"

	"adbuffer/internal/wire/syntax"
)

// guard accepts any request on loopback. Beyond loopback a request needs the token or a
// client certificate. A web page of another origin must not change anything, and must not
// use what operators share.
func (s *Server) guard(next http.Handler) http.Handler {
	sameOrigin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if !s.hasAccess(r) {
			text(w, http.StatusForbidden, "this needs the token of admin.token_file (Authorization: Bearer …) or a client certificate of admin.client_ca_file")
			return
		}
		if err := sameOrigin.Check(r); err != nil {
			text(w, http.StatusForbidden, "a web page of another origin must not change anything here")
			return
		}
		if isEmbedded(r) {
			text(w, http.StatusForbidden, "a web page of another origin may only link to this")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hasAccess reports whether the client may see more than a monitoring system needs.
func (s *Server) hasAccess(r *http.Request) bool {
	return s.loopback || s.hasToken(r) || hasCertificate(r)
}

// cachedScrapes removes Cache-Control from the scrapes of web pages of another origin, and of clients
// that have no access to more than /metrics. So only operators make next gather metrics as often as
// they ask.
func (s *Server) cachedScrapes(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.hasAccess(r) || isEmbedded(r) {
			r.Header.Del("Cache-Control")
		}
		next.ServeHTTP(w, r)
	})
}

// isEmbedded reports whether a browser sends the request for a web page of another origin, and not
// because its user follows a link. Such a page cannot read the response. But each profile, capture
// and tail that it begins is one that operators cannot have at the same time.
func isEmbedded(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin": // no browser, or no other origin
		return false
	}
	return r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
}

// hasToken compares digests, so that the time it takes does not depend on the token or
// its length.
func (s *Server) hasToken(r *http.Request) bool {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	now := s.opts.Token()
	if now == "" {
		return false
	}
	sent, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(now))
	return subtle.ConstantTimeCompare(sent[:], want[:]) == 1
}

// hasCertificate reports whether the client has a certificate of a trusted authority. Any
// other certificate has failed the handshake: see handshake.VerifyClients.
func hasCertificate(r *http.Request) bool { return r.TLS != nil && len(r.TLS.PeerCertificates) > 0 }

// guardHost refuses a Host that is not loopback if the listener is on loopback. So a web
// page in an operator's browser cannot reach it under the page's own name (DNS rebinding).
func (s *Server) guardHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.loopback && !isLoopbackHost(r.Host) {
			text(w, http.StatusForbidden, "this listener is for loopback; use localhost, 127.0.0.1 or [::1]")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isLoopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return !ok || t.IP.IsLoopback()
}

func isLoopbackHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	return syntax.IsLoopbackHost(host)
}
