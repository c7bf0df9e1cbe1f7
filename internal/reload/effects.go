package reload

import (
	"fmt"
	"slices"
	"strings"

	"adbuffer/internal/upstream"
)

// Effect is what a reload does about a setting that changed.
type Effect string

// The effects.
const (
	// InPlace: the setting holds from the next request on. Pools, sockets, counters
	// and learned state stay.
	InPlace Effect = "in place"
	// NewConnections: in place too, but an open connection keeps the setting that it
	// was opened with. So open connections are replaced within seconds.
	NewConnections Effect = "new connections"
	// NewPool: the SSP gets a new pool, and the old one drains.
	NewPool Effect = "new pool"
	// PoolDrains: the SSP is removed, and its pool drains.
	PoolDrains Effect = "pool drains"
	// Restart: a running process cannot change the setting. A reload refuses the
	// whole configuration.
	Restart Effect = "restart"
)

// effects is the only table of effects: every reload follows it. A path applies to a setting, or
// to all settings of a section that have no path here. A setting without any path needs a restart.
var effects = bySetting(map[Effect][]string{
	InPlace: {
		"server", "server.tls.min_version", "server.tls.groups",
		"admin", "admin.tls.min_version", "admin.tls.groups",
		"log.level", "log.access", "tracing", "deadline",
		"ssps[].pool", "ssps[].timeouts", "ssps[].max_in_flight", "ssps[].max_buffered_bytes", "ssps[].headers",
		"ssps[].host", "ssps[].identity", "ssps[].no_bid_body", "ssps[].rewrite_tmax", "ssps[].gzip_request",
		"ssps[].qps", "ssps[].retry", "ssps[].hedge", "ssps[].adaptive", "ssps[].breaker", "ssps[].ejection", "ssps[].health_check",
		"ssps[].slow_start", "ssps[].retry_after_max", "ssps[].retry_after_share",
		"routes", // their order
		"routes[]",
	},
	NewConnections: {
		"ssps[].pool.max_streams_per_conn", "ssps[].pool.pipeline_depth", "ssps[].pool.linger",
		"ssps[].max_response_bytes", "ssps[].max_response_header_bytes", "ssps[].max_response_fields",
	},
	NewPool: {
		"ssps[]",           // a new SSP; see removedEffect
		"ssps[].endpoints", // but see changeEffect
		"ssps[].name", "ssps[].protocol", "ssps[].tls", "ssps[].source_addresses",
	},
	Restart: {
		"server.listen", "server.socket_mode", "server.reuse_port", "server.proxy_protocol", "admin.listen", // sockets are opened once
		"server.tls", "admin.tls", "admin.client_ca_file", // the names; changed files are reloaded at any time
		"server.max_header_bytes", // the size of the server's buffers
		"log.format",              // the log is opened once
		"fleet",                   // replicas must agree on these keys; the password file is read again
	},
})

// bySetting returns the effect of each path. It panics if a path has two.
func bySetting(settings map[Effect][]string) map[string]Effect {
	all := make(map[string]Effect)
	for effect, paths := range settings {
		for _, path := range paths {
			if other, twice := all[path]; twice {
				panic(fmt.Sprintf("BUG: %s has the effects %s and %s", path, other, effect))
			}
			all[path] = effect
		}
	}
	return all
}

// strength orders the effects of changes to one SSP.
var strength = map[Effect]int{InPlace: 1, NewConnections: 2, NewPool: 3}

func stronger(a, b Effect) Effect {
	if strength[b] > strength[a] {
		return b
	}
	return a
}

// effectsBySSP returns the strongest effect of the changes to each SSP's settings.
func effectsBySSP(changes []Change) map[string]Effect {
	strongest := make(map[string]Effect)
	for _, c := range changes {
		rest, found := strings.CutPrefix(c.Path, "ssps[")
		if name, _, inside := strings.Cut(rest, "]."); found && inside {
			strongest[name] = stronger(strongest[name], c.Effect)
		}
	}
	return strongest
}

// effectOf is the effect of the row for path, or for the nearest section around it.
func effectOf(path string) Effect {
	if e, ok := listedEffect(anyMember(path)); ok {
		return e
	}
	return Restart
}

func listedEffect(setting string) (e Effect, ok bool) {
	for p := setting; p != ""; p = p[:max(0, strings.LastIndexByte(p, '.'))] {
		if p == "ssps[]" && p != setting {
			return "", false // the row of a new SSP does not apply to its settings
		}
		if e, ok = effects[p]; ok {
			return e, true
		}
	}
	return "", false
}

// anyMember takes the name out of a path: ssps[].host for ssps[openx].host.
func anyMember(path string) string {
	before, rest, ok := strings.Cut(path, "[")
	if !ok {
		return path
	}
	_, after, _ := strings.Cut(rest, "]")
	return before + "[]" + after
}

// changeEffect is effectOf for a setting that both configurations have.
func changeEffect(path string, was, is leaf) Effect {
	if anyMember(path) == "ssps[].endpoints" && keepsEndpoint(was.values, is.values) {
		return InPlace
	}
	return effectOf(path)
}

// removedEffect is effectOf for a setting, SSP or route that is removed.
func removedEffect(path string) Effect {
	if anyMember(path) == "ssps[]" {
		return PoolDrains
	}
	return effectOf(path)
}

// keepsEndpoint reports whether a and b share a host and port, with the same scheme. Then the pool
// stays, with that endpoint's connections. Otherwise a new pool opens connections before the old
// one drains.
func keepsEndpoint(a, b []string) bool {
	x, errX := upstream.ParseEndpoints(a)
	y, errY := upstream.ParseEndpoints(b)
	return errX == nil && errY == nil && x.Scheme == y.Scheme &&
		slices.ContainsFunc(y.All, func(e upstream.Endpoint) bool { return slices.Contains(x.All, e) })
}
