package dial

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"adbuffer/internal/machine/configfile"
	"adbuffer/internal/machine/lag"
	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/handshake"
	"adbuffer/internal/wire/socket"
)

// TLS holds adbuffer's identity towards an SSP, and the rules for checking the SSP's identity. The
// comments name the settings as config/reference.yaml does.
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
	serverName string      // "" = the address's host
	sessions   tls.ClientSessionCache
	cert       *clientCert // nil = none
}

func newClientTLS(o *TLS, mode Mode, warn func(error)) (*clientTLS, error) {
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
		c.cert, err = newClientCert(o.CertFile, o.KeyFile, warn)
		if err != nil {
			return nil, err
		}
	}
	return c, nil
}

// handshake opens a TLS connection on sock. If it fails, the caller closes sock.
func (d *Dialer) handshake(ctx context.Context, sock *socket.Conn, addr exchange.Address, offer []string) (*tls.Conn, tls.ConnectionState, error) {
	certRequested := false
	limit := d.timeouts.handshake()
	limited, cancel := d.opts.Lag.WithTimeout(ctx, limit)
	defer cancel()
	turns := d.opts.CPU.NewHandshake(cpushare.SSPHandshake, d.opts.Party, limited.Done())
	below := &tlsSocket{sock, turns}
	conn := tls.Client(below, d.tls.config(addr, offer, &certRequested))
	began := time.Now()
	err := turns.Acquire(began.Add(limit + lag.MostExtra))
	if err == nil {
		err = conn.HandshakeContext(limited)
	}
	turns.Release()
	below.turns = nil
	if err != nil {
		if errors.Is(err, context.Canceled) || errors.Is(err, net.ErrClosed) {
			err = cmp.Or(limited.Err(), err) // crypto/tls returns the error of a context of its own
		}
		if errors.Is(err, context.DeadlineExceeded) && time.Since(began)-turns.Waited < limit {
			err = errNoTurn
		}
		return nil, tls.ConnectionState{}, d.tlsError(ctx, addr, offer, certRequested, sock.HasReceived(), err)
	}
	return conn, conn.ConnectionState(), nil
}

// errNoTurn is the error of a handshake that would have been in time without its waits for turns. It does not blame
// the SSP.
var errNoTurn = fmt.Errorf("%w: the handshake waited for its turn; see server.background_cpu", lag.ErrTooMuch)

// tlsSocket is the socket below TLS.
type tlsSocket struct {
	*socket.Conn
	turns *cpushare.Handshake // nil after the handshake
}

// Read implements net.Conn.
func (s *tlsSocket) Read(b []byte) (int, error) {
	if s.turns == nil {
		return s.Conn.Read(b)
	}
	if !s.ReadAhead() {
		s.turns.Release()
	}
	n, err := s.Conn.Read(b)
	if err == nil {
		err = s.turns.Arrived(b[:n], time.Now().Add(lag.MostExtra)) // the handshake's context ends before this deadline
	}
	return n, err
}

// Write implements net.Conn.
func (s *tlsSocket) Write(b []byte) (int, error) {
	if s.turns != nil {
		s.turns.Release()
	}
	return s.Conn.Write(b)
}

// config returns the configuration of one handshake. *certRequested is set if the peer requests a client certificate.
func (c *clientTLS) config(addr exchange.Address, offer []string, certRequested *bool) *tls.Config {
	cfg := c.base.Clone()
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
		// A resumed session has the client certificate of its first handshake, so each version of the certificate has
		// sessions of its own.
		key += " " + string(version[:])
	}
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		*certRequested = true
		return own, nil
	}
	cfg.ClientSessionCache = addressSessions{c.sessions, key}
	return handshake.VerifyServer(cfg)
}

// addressSessions is a session cache with one entry, for one address: an entry of cache.
type addressSessions struct {
	cache tls.ClientSessionCache
	key   string
}

func (s addressSessions) Get(string) (*tls.ClientSessionState, bool) { return s.cache.Get(s.key) }

func (s addressSessions) Put(_ string, state *tls.ClientSessionState) { s.cache.Put(s.key, state) }
