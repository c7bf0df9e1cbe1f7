package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"time"

	"adbuffer/internal/config"
	"adbuffer/internal/fleet"
)

// firstLease bounds the wait of a start for the first tokens. Without them the
// first requests would find none.
const firstLease = time.Second

// startFleet makes what leases tokens from Redis, where that is configured. It
// does not need Redis to be there.
func (a *App) startFleet(c *config.Fleet) error {
	if c.Redis.Address == "" {
		return nil
	}
	r := fleet.Redis{Username: c.Redis.Username, DB: c.Redis.DB}
	r.Network, r.Address = c.Redis.Address.Split()
	var err error
	if r.TLS, err = redisTLS(&c.Redis); err != nil {
		return fmt.Errorf("fleet.redis.tls: %w", err)
	}
	a.fleet = fleet.New(fleet.Options{
		Redis: r, Prefix: c.Prefix, ExpectedReplicas: max(1, c.ExpectedReplicas),
		LeaseInterval: c.LeaseInterval, ReplicaTimeout: c.ReplicaTimeout, Log: a.peers.Logger(),
	})
	a.fleet.SetPassword(c.Redis.Password.Reveal())
	return nil
}

// redisTLS is nil for cleartext. The client certificate is read for each
// connection, so that it can be renewed.
func redisTLS(c *config.Redis) (*tls.Config, error) {
	if !c.TLS.Enabled {
		return nil, nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.TLS.ServerName, InsecureSkipVerify: c.TLS.InsecureSkipVerify}
	if t.ServerName == "" {
		t.ServerName, _, _ = net.SplitHostPort(string(c.Address))
	}
	if c.TLS.CAFile != "" {
		pem, err := os.ReadFile(c.TLS.CAFile)
		if err != nil {
			return nil, err
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", c.TLS.CAFile)
		}
	}
	if certFile, keyFile := c.TLS.CertFile, c.TLS.KeyFile; certFile != "" {
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, err := tls.LoadX509KeyPair(certFile, keyFile)
			return &cert, err
		}
	}
	return t, nil
}

// awaitFirstLease waits until Redis has been asked for once.
func (a *App) awaitFirstLease() {
	if a.fleet == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), firstLease)
	defer cancel()
	a.fleet.AwaitFirst(ctx)
}

// leaveFleet gives this replica's share to the others.
func (a *App) leaveFleet() {
	if a.fleet == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), firstLease)
	defer cancel()
	a.fleet.Close(ctx)
}
