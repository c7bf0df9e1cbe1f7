package handshake

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// The bounds of a peer's certificates. If many certificates of a chain have the issuer's name, verification tries up
// to 100 signatures, which takes more than 100 ms with keys on P-521. Chains of public authorities have three or four
// certificates and 6 KiB.
const (
	maxChain      = 10
	maxChainBytes = 24 << 10
)

// VerifyServer returns a client's configuration that verifies the server's certificates as crypto/tls
// does for c, after a check of their number and size. crypto/tls has no hook before its own
// verification, so the result sets InsecureSkipVerify and verifies in VerifyConnection. If
// c.InsecureSkipVerify is set, only number and size are checked.
//
// If c has a ClientSessionCache, the result serves one connection only. If c.ServerName is empty, the server's name
// is taken from the connection's SNI; a server that is dialled by an IP address has no SNI, and is refused.
func VerifyServer(c *tls.Config) *tls.Config {
	if c.VerifyConnection != nil {
		panic("BUG: the configuration verifies connections already")
	}
	v := newVerifier(c, c.RootCAs, x509.ExtKeyUsageServerAuth)
	v.name, v.isServer, v.onlySize = c.ServerName, true, c.InsecureSkipVerify
	c = c.Clone()
	c.InsecureSkipVerify, c.VerifyConnection = true, v.verify
	if c.ClientSessionCache != nil {
		c.ClientSessionCache = verifiedSessions{c.ClientSessionCache, v}
	}
	return c
}

// VerifyClients returns the configuration of one connection of a server. It verifies the client's
// certificates as crypto/tls does for c, after a check of their number and size. On a connection whose
// handshake has succeeded, PeerCertificates is not empty if and only if the client has a certificate of
// c.ClientCAs. VerifiedChains is always empty. The alert for a certificate that is not valid is always
// bad_certificate. If c verifies no certificates, the result is c.
func VerifyClients(c *tls.Config) *tls.Config {
	if c.ClientAuth < tls.VerifyClientCertIfGiven {
		return c
	}
	v := newVerifier(c, c.ClientCAs, x509.ExtKeyUsageClientAuth)
	c = c.Clone()
	c.VerifyConnection = v.verify
	if c.ClientAuth == tls.RequireAndVerifyClientCert {
		c.ClientAuth = tls.RequireAnyClientCert
	} else {
		c.ClientAuth = tls.RequestClientCert
	}
	c.WrapSession = func(state tls.ConnectionState, s *tls.SessionState) ([]byte, error) {
		v.markSession(s)
		return c.EncryptTicket(state, s)
	}
	c.UnwrapSession = func(ticket []byte, state tls.ConnectionState) (*tls.SessionState, error) {
		s, err := c.DecryptTicket(ticket, state)
		if s == nil || !v.mayResume(s) {
			return nil, err
		}
		return s, nil
	}
	return c
}

// verifier verifies the certificates of peers. If sessions can be resumed, a verifier serves one connection only.
type verifier struct {
	roots    *x509.CertPool
	usage    x509.ExtKeyUsage
	time     func() time.Time
	isServer bool   // the peer is a server, whose name is verified
	name     string // the server's name; "" = the name in SNI
	onlySize bool   // only number and size are checked

	// validUntil is when the verified certificates expire. They were verified in this handshake, or in the handshake
	// that began the resumed session. validUntil is zero if no certificates were verified.
	validUntil time.Time
}

func newVerifier(c *tls.Config, roots *x509.CertPool, usage x509.ExtKeyUsage) *verifier {
	v := &verifier{roots: roots, usage: usage, time: c.Time}
	if v.time == nil {
		v.time = time.Now
	}
	return v
}

// verify is a tls.Config.VerifyConnection, which crypto/tls calls in each handshake.
func (v *verifier) verify(state tls.ConnectionState) error {
	certs := state.PeerCertificates
	switch {
	case len(certs) == 0: // a client that need not have a certificate
		return nil
	case state.DidResume && !v.validUntil.IsZero():
		return nil
	}
	v.validUntil = time.Time{}
	chains, err := v.chains(&state)
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: certs, Err: err}
	}
	for _, chain := range chains { // the session may be resumed while one of the chains is valid
		until := chain[0].NotAfter
		for _, cert := range chain {
			if cert.NotAfter.Before(until) {
				until = cert.NotAfter
			}
		}
		if until.After(v.validUntil) {
			v.validUntil = until
		}
	}
	return nil
}

func (v *verifier) chains(state *tls.ConnectionState) ([][]*x509.Certificate, error) {
	certs := state.PeerCertificates
	if err := checkSize(certs); err != nil || v.onlySize {
		return nil, err
	}
	opts := x509.VerifyOptions{
		Roots: v.roots, Intermediates: x509.NewCertPool(), CurrentTime: v.time(), KeyUsages: []x509.ExtKeyUsage{v.usage},
	}
	if v.isServer {
		opts.DNSName = v.name
		if opts.DNSName == "" {
			opts.DNSName = state.ServerName
		}
		if opts.DNSName == "" {
			return nil, errors.New("the server's name is unknown")
		}
	}
	for _, cert := range certs[1:] {
		opts.Intermediates.AddCert(cert)
	}
	return certs[0].Verify(opts)
}

func checkSize(certs []*x509.Certificate) error {
	n := 0
	for _, cert := range certs {
		n += len(cert.Raw)
	}
	if len(certs) > maxChain || n > maxChainBytes {
		return &ChainError{len(certs), n}
	}
	return nil
}

// ChainError says that a peer sent a longer chain of certificates than adbuffer verifies.
type ChainError struct{ Certificates, Bytes int }

func (e *ChainError) Error() string {
	return fmt.Sprintf("the peer sent %d certificates of %d bytes; adbuffer verifies at most %d certificates of %d bytes together", e.Certificates, e.Bytes, maxChain, maxChainBytes)
}

// sessionMark is the prefix of an entry in tls.SessionState.Extra. The entry says when the verified certificates
// expire, in Unix seconds, and for which server name they were verified.
const sessionMark = "adbuffer verified:"

// markSession records in a new session when its certificates expire.
func (v *verifier) markSession(s *tls.SessionState) {
	if v.validUntil.IsZero() {
		return
	}
	entry := binary.BigEndian.AppendUint64([]byte(sessionMark), uint64(v.validUntil.Unix()))
	s.Extra = append(s.Extra, append(entry, v.name...))
}

// mayResume returns false if the verified certificates of a session have expired. A session without verified
// certificates may be resumed, since verify then verifies the certificates.
func (v *verifier) mayResume(s *tls.SessionState) bool {
	v.validUntil = time.Time{}
	for _, entry := range s.Extra {
		entry, ok := bytes.CutPrefix(entry, []byte(sessionMark))
		if !ok || len(entry) < 8 || string(entry[8:]) != v.name {
			continue
		}
		v.validUntil = time.Unix(int64(binary.BigEndian.Uint64(entry)), 0)
		return v.time().Before(v.validUntil)
	}
	return true
}

// verifiedSessions is a ClientSessionCache that records in each session when the server's certificates expire, and
// returns no session with expired certificates.
type verifiedSessions struct {
	tls.ClientSessionCache
	verifier *verifier
}

func (c verifiedSessions) Get(key string) (*tls.ClientSessionState, bool) {
	state, ok := c.ClientSessionCache.Get(key)
	if !ok || state == nil {
		return nil, false
	}
	if _, s, err := state.ResumptionState(); err != nil || s == nil || !c.verifier.mayResume(s) {
		return nil, false
	}
	return state, true
}

func (c verifiedSessions) Put(key string, state *tls.ClientSessionState) {
	if state != nil {
		if _, s, err := state.ResumptionState(); err == nil && s != nil {
			c.verifier.markSession(s)
		}
	}
	c.ClientSessionCache.Put(key, state)
}
