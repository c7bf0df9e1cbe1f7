package app

import (
	"context"
	"crypto/tls"
	"net"
	"os"

	"go.uber.org/zap"

	"adbuffer/internal/client/listen"
	"adbuffer/internal/machine/configfile"
	"adbuffer/internal/setup/config"
)

// listen opens the listeners, and registers their metrics.
func (a *App) listen() error {
	cfg := a.versions.Current().Config
	options := func(name, key string, at config.Address, c *listen.Certificates) listen.Options {
		network, address := at.Split()
		return listen.Options{
			Name: name, Key: key, Network: network, Address: address,
			Mode: os.FileMode(cfg.Server.SocketMode), ReusePort: cfg.Server.ReusePort, Certificates: c, FreeFile: a.proxy.FreeFile,
		}
	}
	sockets, err := listen.Open(options("traffic", "server.listen", cfg.Server.Listen, a.certificates.server), options("admin", "admin.listen", cfg.Admin.Listen, a.certificates.admin), a.peers.Logger())
	if err != nil {
		return err
	}
	a.sockets = sockets
	a.trustPeers(cfg)
	if t, ok := a.AdminAddr().(*net.TCPAddr); ok && sockets.Passed && !t.IP.IsLoopback() && cfg.Admin.Token.Empty() && cfg.Admin.ClientCAFile == "" {
		a.log.Warn("the admin socket from systemd is reachable from other machines, and there is no admin.token_file and no admin.client_ca_file; all but /metrics, /healthz and /readyz will respond 403", zap.Stringer("admin", t))
	}
	return a.registry.Register(sockets.Metrics())
}

// trustPeers sets which peers must send a PROXY header, if server.proxy_protocol is on.
func (a *App) trustPeers(cfg *config.Config) {
	if cfg.Server.ProxyProtocol {
		a.sockets.Traffic.Trust(cfg.Server.TrustedProxies, cfg.Server.ReadTimeout)
	}
}

// TrafficAddr is the address of the traffic listener.
func (a *App) TrafficAddr() net.Addr { return a.sockets.Traffic.Addr() }

// AdminAddr is the address of the admin listener.
func (a *App) AdminAddr() net.Addr { return a.sockets.Admin.Addr() }

// certificates are the certificates of both listeners; nil = the listener has no TLS.
type certificates struct{ server, admin *listen.Certificates }

// reload reads the files of both certificates again.
func (c *certificates) reload() {
	c.each(func(one *listen.Certificates) { one.Reload() }) //nolint:errcheck // Reload logs and counts it
}

func (a *App) loadCertificates(cfg *config.Config) (err error) {
	load := func(name string, files configfile.TLSFiles, auth tls.ClientAuthType) (*listen.Certificates, error) {
		if files.Cert == "" {
			return nil, nil
		}
		return listen.LoadCertificates(listen.Files{Name: name, TLSFiles: files, ClientAuth: auth, Policy: cfg.Server.TLS.Policy()}, a.log)
	}
	s, t := &cfg.Server.TLS, &cfg.Admin.TLS
	a.certificates.server, err = load("server", configfile.TLSFiles{Cert: s.CertFile, Key: s.KeyFile, CA: s.ClientCAFile}, tls.RequireAndVerifyClientCert)
	if err == nil {
		a.certificates.admin, err = load("admin", configfile.TLSFiles{Cert: t.CertFile, Key: t.KeyFile, CA: cfg.Admin.ClientCAFile}, tls.VerifyClientCertIfGiven)
	}
	return err
}

// setPolicies applies the TLS policy of cfg to both listeners.
func (c *certificates) setPolicies(cfg *config.Config) {
	c.each(func(one *listen.Certificates) { one.SetPolicy(cfg.Server.TLS.Policy()) })
}

// each calls f for the certificates that are not nil.
func (c *certificates) each(f func(*listen.Certificates)) {
	for _, one := range []*listen.Certificates{c.server, c.admin} {
		if one != nil {
			f(one)
		}
	}
}

// watchCertificates reloads the listeners' certificates and the TLS files for Redis when these files change, until ctx
// ends.
func (a *App) watchCertificates(ctx context.Context) {
	a.certificates.each(func(c *listen.Certificates) { a.background.Go(func() { c.Watch(ctx) }) })
	if a.redisFiles != nil {
		a.background.Go(func() {
			a.redisFiles.Watch(ctx, func(_ bool, err error) {
				if err != nil {
					a.log.Warn("the changed TLS files for Redis are not valid, and the previous ones stay in use; see fleet.redis.tls", zap.Error(err))
				}
			})
		})
	}
}

// tlsOf returns the TLS configuration of a listener; nil for cleartext.
func tlsOf(c *listen.Certificates, nextProtos ...string) *tls.Config {
	if c == nil {
		return nil
	}
	return c.Config(nextProtos...)
}
