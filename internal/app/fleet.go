package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"adbuffer/internal/config"
	"adbuffer/internal/configfile"
	"adbuffer/internal/fleet"
)

// firstLease bounds the wait for the first tokens at the start. Without tokens, the first requests
// would be refused.
const firstLease = time.Second

// startFleet starts to lease tokens if the configuration names a Redis. It does not need
// Redis to respond.
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

// redisTLS returns nil for cleartext. Each new connection checks whether the files of the
// client certificate changed, so that an operator can renew it.
func redisTLS(c *config.Redis) (*tls.Config, error) {
	if !c.TLS.Enabled {
		return nil, nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.TLS.ServerName, InsecureSkipVerify: c.TLS.InsecureSkipVerify}
	if t.ServerName == "" {
		t.ServerName, _, _ = net.SplitHostPort(string(c.Address))
	}
	keeper, err := configfile.Keep(configfile.TLSFiles{Cert: c.TLS.CertFile, Key: c.TLS.KeyFile, CA: c.TLS.CAFile})
	if err != nil {
		return nil, err
	}
	t.RootCAs = keeper.Current().Authorities
	if c.TLS.CertFile != "" {
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			_, err := keeper.Check()
			return keeper.Current().Certificate, err
		}
	}
	return t, nil
}

// awaitFirstLease waits until the first request to Redis has ended.
func (a *App) awaitFirstLease() {
	if a.fleet == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), firstLease)
	defer cancel()
	a.fleet.AwaitFirst(ctx)
}

// leaveFleet returns this replica's share to the fleet.
func (a *App) leaveFleet() {
	if a.fleet == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), firstLease)
	defer cancel()
	a.fleet.Close(ctx)
}
