package config

import (
	"math"
	"slices"

	"adbuffer/internal/machine/capacity"
)

// minTimeoutLeases is the shortest replica_timeout, in lease intervals. With less, a few late calls
// would make a replica look dead.
const minTimeoutLeases = 20

func checkFleet(cfg *Config, r *report) {
	f := &cfg.Fleet
	checkRedis(&f.Redis, r)
	if least := minTimeoutLeases * f.LeaseInterval; f.ReplicaTimeout < least {
		r.add("fleet.replica_timeout", formatDuration(f.ReplicaTimeout), "must be at least 20 times fleet.lease_interval, "+formatDuration(least),
			"fleet.lease_interval")
	}
	for i := range cfg.SSPs {
		path := join(at("ssps", i), "qps.scope")
		if cfg.SSPs[i].QPS.Scope == ScopeFleet && f.Redis.Address == "" {
			r.add(path, ScopeFleet, "needs fleet.redis.address, where replicas share the limit", "fleet.redis.address")
		}
	}
	if f.ExpectedReplicas == 0 && cfg.sharesLimits() {
		r.add("fleet.expected_replicas", 0, "must be at least 1 where an SSP has qps.scope fleet: a replica that starts while Redis is away sends limit/expected_replicas")
	}
}

// SharesLimit reports whether all replicas share a limit on the SSP's requests per second.
func (s *SSP) SharesLimit() bool { return s.QPS.Scope == ScopeFleet && s.QPS.Limit > 0 }

// sharesLimits reports whether the replicas share the limit of at least one SSP.
func (c *Config) sharesLimits() bool {
	return slices.ContainsFunc(c.SSPs, func(s SSP) bool { return s.QPS.Scope == ScopeFleet })
}

func checkRedis(c *Redis, r *report) {
	c.TLS.check("fleet.redis.tls", r)
	if network, _ := c.Address.Split(); network == "unix" && c.TLS.Enabled {
		r.add("fleet.redis.tls.enabled", true, "needs an address with host and port; a unix socket is not encrypted")
	}
	if c.PasswordFile != "" {
		c.Password = readToken(c.PasswordFile, "fleet.redis.password_file", r)
	}
}

func (w *warner) fleet(cfg *Config) {
	f := &cfg.Fleet
	c := &f.Redis
	if c.Address == "" {
		return
	}
	if !cfg.sharesLimits() {
		w.add("fleet.redis.address", "no SSP has qps.scope fleet, so adbuffer does not use Redis")
	}
	if network, _ := c.Address.Split(); network == "tcp" && !c.TLS.Enabled && !c.Password.Empty() && !isLoopback(c.Address) {
		w.add("fleet.redis.password_file", "the password crosses the network in cleartext; tls.enabled would encrypt it")
	}
	if t := c.TLS; !t.Enabled && t != (RedisTLS{}) {
		w.add("fleet.redis.tls.enabled", "is false, so the other keys of fleet.redis.tls are not used")
	}
	if c.TLS.Enabled && c.TLS.InsecureSkipVerify {
		w.add("fleet.redis.tls.insecure_skip_verify", "a machine between adbuffer and Redis can read the password and change the limits")
	}
}

// qps warns about an SSP's limit on requests a second.
func (w *warner) qps(f *Fleet, q *QPS, path string) {
	if q.Scope != ScopeFleet {
		return
	}
	if q.Limit == 0 {
		w.add(join(path, "scope"), "fleet has no effect, since limit is 0")
		return
	}
	o := q.Options()
	burst := o.BurstInForce()
	// A replica gets new tokens only after it has reported the requests that used the previous ones.
	if least := math.Ceil(4 * q.Limit * f.LeaseInterval.Seconds()); float64(burst) < least {
		w.add(join(path, "burst"), "%d is less than limit allows in four lease intervals, %s; the fleet will send less than limit: raise burst, or lower fleet.lease_interval",
			burst, capacity.FormatNumber(least))
	}
}
