package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"strings"

	"adbuffer/internal/wire/syntax"
)

// guard gives access to every request on loopback. Beyond loopback, a request needs the token or a client
// certificate. A request that a web page of another origin causes is refused if it would change anything,
// or take something that operators share, such as a profile.
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

// hasAccess reports whether the client may use the guarded paths.
func (s *Server) hasAccess(r *http.Request) bool {
	return s.loopback || s.hasToken(r) || hasCertificate(r)
}

// cachedScrapes removes Cache-Control from scrapes by clients without access, and by web pages of another
// origin. So only operators can make next gather new values for each scrape.
func (s *Server) cachedScrapes(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.hasAccess(r) || isEmbedded(r) {
			r.Header.Del("Cache-Control")
		}
		next.ServeHTTP(w, r)
	})
}

// isEmbedded reports whether a browser sends the request on behalf of a web page of another origin, and not
// because its user followed a link. Such a page cannot read the response, but each profile, capture or
// tail that it starts would be unavailable to operators meanwhile.
func isEmbedded(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin": // not a browser, or not a page of another origin
		return false
	}
	return r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
}

// hasToken reports whether the request has the token. It compares digests, so that its duration reveals
// neither the token nor its length.
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

// hasCertificate reports whether the client has presented a certificate of a trusted authority. With any
// other certificate the handshake would have failed; see handshake.VerifyClients.
func hasCertificate(r *http.Request) bool { return r.TLS != nil && len(r.TLS.PeerCertificates) > 0 }

// guardHost refuses requests whose Host is not loopback, if the listener is on loopback. So a web page in an
// operator's browser cannot reach the listener under a host name of its own (DNS rebinding).
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
