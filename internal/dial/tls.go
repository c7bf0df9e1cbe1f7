package dial

import (
	"context"
	"crypto/tls"
	"errors"

	"adbuffer/internal/configfile"
	"adbuffer/internal/handshake"
	"adbuffer/internal/socket"
	"adbuffer/internal/upstream"
)

// TLS holds adbuffer's identity towards an SSP, and the rules for checking the SSP's identity. The
// comments name the settings as config/adbuffer.yaml does.
type TLS struct {
	ServerName         string           // tls.server_name; "" = the endpoint's host
	CAFile             string           // tls.ca_file, PEM; "" = the system's authorities
	CertFile           string           // tls.cert_file, PEM; "" = no client certificate
	KeyFile            string           // tls.key_file, PEM; set if and only if CertFile is
	InsecureSkipVerify bool             // tls.insecure_skip_verify
	Policy             handshake.Policy // tls.min_version, tls.groups
}

// clientTLS creates the configuration of each handshake.
type clientTLS struct {
	base       *tls.Config // never changed
	small      *tls.Config // base without hybrid groups, nil if base has none; never changed
	serverName string      // "" = the address's host
	sessions   tls.ClientSessionCache
	cert       *clientCert // nil = none
}

func newClientTLS(o *TLS, mode Mode, warn func(error), stats *counters) (*clientTLS, error) {
	c := &clientTLS{
		base:       &tls.Config{InsecureSkipVerify: o.InsecureSkipVerify},
		serverName: o.ServerName,
		sessions:   tls.NewLRUClientSessionCache(maxAddrs),
	}
	o.Policy.Apply(c.base)
	if mode == HTTP2 {
		c.base.CipherSuites = handshake.HTTP2Suites
	}
	if o.CAFile != "" {
		m, err := configfile.TLSFiles{CA: o.CAFile}.Load()
		if err != nil {
			return nil, withSetting(err)
		}
		c.base.RootCAs = m.Authorities
	}
	if o.CertFile != "" {
		var err error
		c.cert, err = newClientCert(o.CertFile, o.KeyFile, warn, stats)
		if err != nil {
			return nil, err
		}
	}
	if classical, ok := o.Policy.Classical(); ok {
		c.small = c.base.Clone()
		classical.Apply(c.small)
	}
	return c, nil
}

// handshake opens a TLS connection on sock. If it fails, the caller closes sock.
func (d *Dialer) handshake(ctx context.Context, sock *socket.Conn, addr upstream.Address, offer []string, small bool) (*tls.Conn, tls.ConnectionState, error) {
	certRequested := false
	conn := tls.Client(sock, d.tls.config(addr, offer, small, &certRequested))
	limited, cancel := d.opts.Lag.WithTimeout(ctx, d.timeouts.handshake())
	defer cancel()
	if err := conn.HandshakeContext(limited); err != nil {
		if errors.Is(err, context.Canceled) {
			err = limited.Err() // crypto/tls returns the error of a context of its own
		}
		return nil, tls.ConnectionState{}, d.tlsError(ctx, addr, offer, certRequested, err)
	}
	return conn, conn.ConnectionState(), nil
}

// config returns the configuration of one handshake; certRequested is set if the peer requests a
// client certificate.
func (c *clientTLS) config(addr upstream.Address, offer []string, small bool, certRequested *bool) *tls.Config {
	base := c.base
	if small {
		base = c.small
	}
	cfg := base.Clone()
	cfg.NextProtos = offer
	cfg.ServerName = c.serverName
	if cfg.ServerName == "" {
		cfg.ServerName = addr.Host
	}
	// Sessions are kept per address, since machines with the same name rarely share their ticket
	// keys.
	key := addr.String()
	own := new(tls.Certificate) // empty: adbuffer has no client certificate
	if c.cert != nil {
		var version [32]byte
		own, version = c.cert.load()
		// A session keeps the identity of its first handshake.
		key += " " + string(version[:])
	}
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		*certRequested = true
		return own, nil
	}
	if !small { // a ticket makes the ClientHello longer
		cfg.ClientSessionCache = session{c.sessions, key}
	}
	return handshake.VerifyServer(cfg)
}

// session is the entry of a session cache for one address.
type session struct {
	cache tls.ClientSessionCache
	key   string
}

func (s session) Get(string) (*tls.ClientSessionState, bool) { return s.cache.Get(s.key) }

func (s session) Put(_ string, state *tls.ClientSessionState) { s.cache.Put(s.key, state) }
