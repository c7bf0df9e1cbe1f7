package reload

import (
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

// effects is the only table of effects: every reload follows it. A row applies to a setting, or to
// all settings of a section that have no row. A setting without any row needs a restart.
var effects = map[string]Effect{
	"server":                  InPlace,
	"server.listen":           Restart, // sockets are opened once
	"server.socket_mode":      Restart,
	"server.reuse_port":       Restart,
	"server.tls":              Restart, // the names; changed files are reloaded at any time
	"server.tls.min_version":  InPlace,
	"server.tls.groups":       InPlace,
	"server.proxy_protocol":   Restart,
	"server.max_header_bytes": Restart, // the size of the server's buffers

	"admin":                 InPlace,
	"admin.listen":          Restart,
	"admin.tls":             Restart, // as server.tls
	"admin.tls.min_version": InPlace,
	"admin.tls.groups":      InPlace,
	"admin.client_ca_file":  Restart,

	"log.level":  InPlace,
	"log.format": Restart, // the log is opened once
	"log.access": InPlace,

	"tracing":  InPlace,
	"fleet":    Restart, // replicas must agree on these keys; the password file is read again
	"deadline": InPlace,

	"ssps[]":                           NewPool, // a new SSP; see removedEffect
	"ssps[].name":                      NewPool,
	"ssps[].endpoints":                 NewPool, // but see changeEffect
	"ssps[].protocol":                  NewPool,
	"ssps[].tls":                       NewPool,
	"ssps[].pool":                      InPlace,
	"ssps[].pool.max_streams_per_conn": NewConnections,
	"ssps[].pool.pipeline_depth":       NewConnections,
	"ssps[].pool.linger":               NewConnections,
	"ssps[].max_response_bytes":        NewConnections,
	"ssps[].max_response_header_bytes": NewConnections,
	"ssps[].max_response_fields":       NewConnections,
	"ssps[].timeouts":                  InPlace,
	"ssps[].max_in_flight":             InPlace,
	"ssps[].max_buffered_bytes":        InPlace,
	"ssps[].headers":                   InPlace,
	"ssps[].host":                      InPlace,
	"ssps[].identity":                  InPlace,
	"ssps[].no_bid_body":               InPlace,
	"ssps[].rewrite_tmax":              InPlace,
	"ssps[].gzip_request":              InPlace,
	"ssps[].qps":                       InPlace,
	"ssps[].retry":                     InPlace,
	"ssps[].hedge":                     InPlace,
	"ssps[].adaptive":                  InPlace,
	"ssps[].breaker":                   InPlace,
	"ssps[].ejection":                  InPlace,
	"ssps[].slow_start":                InPlace,
	"ssps[].source_addresses":          NewPool,
	"ssps[].retry_after_max":           InPlace,
	"ssps[].retry_after_share":         InPlace,

	"routes":   InPlace, // their order
	"routes[]": InPlace,
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
