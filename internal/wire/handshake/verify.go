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

// The bounds of a peer's certificates. Verifying a chain tries up to 100 signatures if many of its
// certificates have the name of its issuer. With keys on P-521 that takes more than 100 ms. Chains of
// public authorities have three or four certificates and 6 KiB.
const (
	maxChain      = 10
	maxChainBytes = 24 << 10
)

// VerifyServer returns a client's configuration that verifies the server's certificates as crypto/tls
// does for c, after a check of their number and size. crypto/tls has no hook before its own
// verification, so the result sets InsecureSkipVerify and verifies in VerifyConnection. If
// c.InsecureSkipVerify is set, only number and size are checked.
//
// If c has a ClientSessionCache, the result is for one connection. Without a c.ServerName, the name is
// that of the connection's SNI, and an IP address is refused.
func VerifyServer(c *tls.Config) *tls.Config {
	if c.VerifyConnection != nil {
		panic("BUG: the configuration verifies connections already")
	}
	v := newVerifier(c, c.RootCAs, x509.ExtKeyUsageServerAuth)
	v.name, v.isServer, v.skips = c.ServerName, true, c.InsecureSkipVerify
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
		v.mark(s)
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

// verifier verifies the certificates of peers. If sessions are resumed, it is for one connection.
type verifier struct {
	roots    *x509.CertPool
	usage    x509.ExtKeyUsage
	time     func() time.Time
	isServer bool   // the peer is a server, which needs a name
	name     string // of the server; "" = that of SNI
	skips    bool   // only number and size are checked

	// until is when the verified certificates expire: those of this handshake, or of the handshake that
	// began the session. It is zero if none were verified.
	until time.Time
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
	case len(certs) == 0: // of a client that need not have one
		return nil
	case state.DidResume && !v.until.IsZero():
		return nil
	}
	v.until = time.Time{}
	chains, err := v.chains(&state)
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: certs, Err: err}
	}
	for _, chain := range chains { // a session may resume while one of the chains is valid
		until := chain[0].NotAfter
		for _, cert := range chain {
			if cert.NotAfter.Before(until) {
				until = cert.NotAfter
			}
		}
		if until.After(v.until) {
			v.until = until
		}
	}
	return nil
}

func (v *verifier) chains(state *tls.ConnectionState) ([][]*x509.Certificate, error) {
	certs := state.PeerCertificates
	if err := checkSize(certs); err != nil || v.skips {
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

// ChainError is the error of a peer that sent a longer chain of certificates than adbuffer verifies.
type ChainError struct{ Certificates, Bytes int }

func (e *ChainError) Error() string {
	return fmt.Sprintf("the peer sent %d certificates of %d bytes; adbuffer verifies at most %d certificates of %d bytes together", e.Certificates, e.Bytes, maxChain, maxChainBytes)
}

// sessionMark begins the entry of a session's Extra that says when the verified certificates expire, in
// Unix seconds, and for which server name they were verified.
const sessionMark = "adbuffer verified:"

// mark notes in a new session when its certificates expire.
func (v *verifier) mark(s *tls.SessionState) {
	if v.until.IsZero() {
		return
	}
	entry := binary.BigEndian.AppendUint64([]byte(sessionMark), uint64(v.until.Unix()))
	s.Extra = append(s.Extra, append(entry, v.name...))
}

// mayResume returns false if the verified certificates of a session have expired. If none were verified,
// verify does it when the session has been resumed.
func (v *verifier) mayResume(s *tls.SessionState) bool {
	v.until = time.Time{}
	for _, entry := range s.Extra {
		entry, ok := bytes.CutPrefix(entry, []byte(sessionMark))
		if !ok || len(entry) < 8 || string(entry[8:]) != v.name {
			continue
		}
		v.until = time.Unix(int64(binary.BigEndian.Uint64(entry)), 0)
		return v.time().Before(v.until)
	}
	return true
}

// verifiedSessions is a ClientSessionCache whose sessions say when their servers' certificates expire.
type verifiedSessions struct {
	tls.ClientSessionCache
	v *verifier
}

func (c verifiedSessions) Get(key string) (*tls.ClientSessionState, bool) {
	state, ok := c.ClientSessionCache.Get(key)
	if !ok || state == nil {
		return nil, false
	}
	if _, s, err := state.ResumptionState(); err != nil || s == nil || !c.v.mayResume(s) {
		return nil, false
	}
	return state, true
}

func (c verifiedSessions) Put(key string, state *tls.ClientSessionState) {
	if state != nil {
		if _, s, err := state.ResumptionState(); err == nil && s != nil {
			c.v.mark(s)
		}
	}
	c.ClientSessionCache.Put(key, state)
}
