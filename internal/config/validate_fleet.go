package config

import (
	"math"
	"net"
	"slices"
	"strings"

	"adbuffer/internal/capacity"
	"adbuffer/internal/syntax"
)

// timeoutLeases is the least replica_timeout in lease_intervals. So a few late calls do not
// make a replica look dead.
const timeoutLeases = 20

func checkFleet(cfg *Config, r *report) {
	f := &cfg.Fleet
	checkRedis(&f.Redis, r)
	if f.Prefix == "" || len(f.Prefix) > maxName || strings.ContainsFunc(f.Prefix, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		r.add("fleet.prefix", f.Prefix, "must be 1 to 64 bytes of printable ASCII without spaces")
	}
	if least := timeoutLeases * f.LeaseInterval; f.ReplicaTimeout < least {
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

// sharesLimits reports whether an SSP has a limit of the fleet.
func (c *Config) sharesLimits() bool {
	return slices.ContainsFunc(c.SSPs, func(s SSP) bool { return s.QPS.Scope == ScopeFleet })
}

func checkRedis(c *Redis, r *report) {
	const path = "fleet.redis"
	c.TLS.check(join(path, "tls"), r)
	if name := c.TLS.ServerName; name != "" && !syntax.IsHost(name) {
		r.add(join(path, "tls.server_name"), name, "must be a host name without a port")
	}
	network, address := c.Address.Split()
	switch {
	case c.Address == "":
	case network == "unix":
		if !strings.HasPrefix(address, "/") || strings.HasSuffix(address, "/") || len(address) > 107 {
			r.add(join(path, "address"), c.Address, redisAddress)
		}
		if c.TLS.Enabled {
			r.add(join(path, "tls.enabled"), true, "needs an address with host and port; a unix socket is not encrypted")
		}
	default:
		host, port, err := net.SplitHostPort(address)
		if err != nil || !syntax.IsHost(host) || !validPort(port) || strings.Trim(port, "0") == "" {
			r.add(join(path, "address"), c.Address, redisAddress)
		}
	}
	if c.PasswordFile != "" {
		c.Password = readToken(c.PasswordFile, join(path, "password_file"), r)
	} else if c.Username != "" {
		r.add(join(path, "username"), c.Username, "needs password_file beside it")
	}
}

const redisAddress = `must be host:port, for example "redis.internal:6379", or unix:/path of at most 107 bytes`

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
	// A replica's tokens are refilled only after it has reported its requests.
	burst := q.Burst
	if burst == 0 {
		burst = max(1, int(q.Limit/10))
	}
	if least := math.Ceil(4 * q.Limit * f.LeaseInterval.Seconds()); float64(burst) < least {
		w.add(join(path, "burst"), "%d is less than the limit gives in four lease intervals, %s; the fleet will send less than limit: raise burst, or lower fleet.lease_interval",
			burst, capacity.FormatNumber(least))
	}
}
