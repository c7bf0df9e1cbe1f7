package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"strings"
)

// guard lets a request through that may see everything: on loopback any, and
// elsewhere one with the token or a client certificate. What changes something must not come from a
// page of somebody else.
func (s *Server) guard(next http.Handler) http.Handler {
	sameOrigin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if !s.loopback && !s.hasToken(r) && !hasCertificate(r) {
			text(w, http.StatusForbidden, "this needs the token of admin.token_file (Authorization: Bearer …) or a client certificate of admin.client_ca_file")
			return
		}
		if err := sameOrigin.Check(r); err != nil {
			text(w, http.StatusForbidden, "a page of another origin must not change anything here")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hasToken compares digests, so that not even the length of the token shows in
// the time that it takes.
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

// hasCertificate reports whether the client has shown a certificate of an
// authority that we trust. One that we do not trust ends its handshake.
func hasCertificate(r *http.Request) bool { return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 }

// guardHost refuses, on loopback, a Host that is not loopback: a page in an
// operator's browser must not reach us by a name of its own (DNS rebinding).
func (s *Server) guardHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.loopback && !isLoopbackHost(r.Host) {
			text(w, http.StatusForbidden, "this listener is for loopback; ask it as localhost, 127.0.0.1 or [::1]")
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
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
