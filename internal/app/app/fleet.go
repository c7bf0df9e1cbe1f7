package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"adbuffer/internal/machine/configfile"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/ssp/fleet"
)

// firstLease bounds the wait for the first tokens at start, without which the first requests would be
// refused, and the time for giving back this replica's share at the end.
const firstLease = time.Second

// startFleet starts to lease tokens, if the configuration names a Redis. It does not fail if Redis does not
// respond.
func (a *App) startFleet(c *config.Fleet) error {
	if c.Redis.Address == "" {
		return nil
	}
	o := fleetOptions(c)
	var err error
	o.Redis.TLS, a.redisFiles, err = redisTLS(&c.Redis)
	if err != nil {
		return fmt.Errorf("fleet.redis.tls: %w", err)
	}
	o.Log = a.peers.Logger()
	a.fleet = fleet.New(o)
	a.fleet.SetPassword(c.Redis.Password.Reveal())
	return nil
}

// fleetOptions returns the settings of the fleet, except for TLS.
func fleetOptions(c *config.Fleet) fleet.Options {
	o := fleet.Options{
		Redis:  fleet.Redis{Username: c.Redis.Username, DB: c.Redis.DB},
		Prefix: c.Prefix, ExpectedReplicas: max(1, c.ExpectedReplicas),
		LeaseInterval: c.LeaseInterval, ReplicaTimeout: c.ReplicaTimeout,
	}
	o.Redis.Network, o.Redis.Address = c.Redis.Address.Split()
	return o
}

// redisTLS returns a function that makes the TLS configuration of a new connection, and the files that it uses; both are
// nil for cleartext. The function uses the files as they were last read and valid; watchCertificates reads changed files
// and reports those that are not valid.
func redisTLS(c *config.Redis) (func() *tls.Config, *configfile.Keeper, error) {
	if !c.TLS.Enabled {
		return nil, nil, nil
	}
	name := c.TLS.ServerName
	if name == "" {
		name, _, _ = net.SplitHostPort(string(c.Address))
	}
	keeper, err := configfile.Keep(configfile.TLSFiles{Cert: c.TLS.CertFile, Key: c.TLS.KeyFile, CA: c.TLS.CAFile})
	if err != nil {
		return nil, nil, err
	}
	return func() *tls.Config {
		m := keeper.Current()
		t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name, InsecureSkipVerify: c.TLS.InsecureSkipVerify, RootCAs: m.Authorities}
		if m.Certificate != nil {
			t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return m.Certificate, nil }
		}
		return t
	}, keeper, nil
}

// withFleet calls f with a context of firstLease, if a Redis is configured.
func (a *App) withFleet(f func(*fleet.Fleet, context.Context)) {
	if a.fleet == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), firstLease)
	defer cancel()
	f(a.fleet, ctx)
}
