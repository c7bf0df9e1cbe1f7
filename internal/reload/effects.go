package reload

import (
	"strings"

	"adbuffer/internal/dial"
)

// Effect is what a reload does about a setting that changed.
type Effect string

// The effects.
const (
	// InPlace: it holds from the next request on. Pools, sockets, counters and
	// what was learned stay.
	InPlace Effect = "in place"
	// NewConnections: in place too, but connections keep it as they were opened
	// with it. So those that are open are replaced within seconds.
	NewConnections Effect = "new connections"
	// NewPool: the SSP gets a new pool, and the old one drains.
	NewPool Effect = "new pool"
	// PoolDrains: the SSP is gone, and its pool drains.
	PoolDrains Effect = "pool drains"
	// Restart: it cannot be changed in a running process. A reload that finds
	// one refuses the whole configuration.
	Restart Effect = "restart"
)

// effects says it for each setting, or for a section with all that is in it. What
// is not here needs a restart, until somebody has thought about it.
var effects = map[string]Effect{
	"server.listen":             Restart, // the listener is opened once
	"server.socket_mode":        Restart,
	"server.reuse_port":         Restart,
	"server.tls":                Restart, // the names; the files are reloaded whenever they change
	"server.proxy_protocol":     Restart,
	"server.max_connections":    InPlace,
	"server.max_in_flight":      InPlace,
	"server.max_uploads":        InPlace,
	"server.max_buffered_bytes": InPlace,
	"server.read_timeout":       InPlace,
	"server.write_timeout":      InPlace,
	"server.idle_timeout":       InPlace,
	"server.max_header_bytes":   Restart, // the size of the server's buffers
	"server.max_body_bytes":     InPlace,
	"server.reduce_idle_memory": InPlace,
	"server.trusted_proxies":    InPlace,
	"server.health_path":        InPlace,
	"server.error_detail":       InPlace,
	"server.via":                InPlace,
	"server.drain":              InPlace,

	"admin.listen":         Restart,
	"admin.token_file":     InPlace,
	"admin.tls":            Restart, // as server.tls
	"admin.client_ca_file": Restart,
	"admin.warmup_timeout": InPlace,
	"admin.capture":        InPlace,

	"log.level":  InPlace,
	"log.format": Restart, // the log is opened once
	"log.access": InPlace,

	"tracing":  InPlace,
	"fleet":    Restart, // what replicas agree on; but the password file's content is read again
	"deadline": InPlace,

	"ssps[]":                           NewPool, // one that comes; see removedEffect
	"ssps[].name":                      NewPool,
	"ssps[].endpoints":                 NewPool, // but see changeEffect
	"ssps[].protocol":                  NewPool,
	"ssps[].tls":                       NewPool,
	"ssps[].max_in_flight":             InPlace,
	"ssps[].pool":                      InPlace,
	"ssps[].pool.max_streams_per_conn": NewConnections,
	"ssps[].pool.pipeline_depth":       NewConnections,
	"ssps[].pool.linger":               NewConnections,
	"ssps[].timeouts":                  InPlace,
	"ssps[].headers":                   InPlace,
	"ssps[].host":                      InPlace,
	"ssps[].identity":                  InPlace,
	"ssps[].max_response_bytes":        NewConnections,
	"ssps[].max_response_header_bytes": NewConnections,
	"ssps[].max_response_fields":       NewConnections,
	"ssps[].max_buffered_bytes":        InPlace,
	"ssps[].no_bid_body":               InPlace,
	"ssps[].rewrite_tmax":              InPlace,
	"ssps[].gzip_request":              InPlace,
	"ssps[].qps":                       InPlace,
	"ssps[].retry":                     InPlace,
	"ssps[].hedge":                     InPlace,
	"ssps[].adaptive":                  InPlace,
	"ssps[].breaker":                   InPlace,
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

// effectOf looks a setting up, or the nearest section that it is in.
func effectOf(path string) Effect {
	if e, ok := listedEffect(anyMember(path)); ok {
		return e
	}
	return Restart
}

func listedEffect(setting string) (e Effect, ok bool) {
	for p := setting; p != ""; p = p[:max(0, strings.LastIndexByte(p, '.'))] {
		if p == "ssps[]" && p != setting {
			return "", false // what is true of an SSP is not of its settings
		}
		if e, ok = effects[p]; ok {
			return e, true
		}
	}
	return "", false
}

// anyMember takes the name out of a path: ssps[].host.
func anyMember(path string) string {
	before, rest, ok := strings.Cut(path, "[")
	if !ok {
		return path
	}
	_, after, _ := strings.Cut(rest, "]")
	return before + "[]" + after
}

// changeEffect is effectOf, for a setting whose values matter.
func changeEffect(path string, was, is setting) Effect {
	if anyMember(path) == "ssps[].endpoints" && sameHosts(was.values, is.values) {
		return InPlace // only what is asked for there, or the order
	}
	return effectOf(path)
}

// removedEffect is that of a setting, SSP or route which is no longer there.
func removedEffect(path string) Effect {
	if anyMember(path) == "ssps[]" {
		return PoolDrains
	}
	return effectOf(path)
}

// sameHosts reports whether connections to one list of endpoints serve the other
// as well: the same scheme, hosts and ports.
func sameHosts(a, b []string) bool {
	x, errX := dial.ParseEndpoints(a)
	y, errY := dial.ParseEndpoints(b)
	if errX != nil || errY != nil || x.Scheme != y.Scheme || len(x.All) != len(y.All) {
		return false
	}
	there := make(map[dial.Endpoint]bool, len(x.All))
	for _, e := range x.All {
		there[e] = true
	}
	for _, e := range y.All {
		if !there[e] {
			return false
		}
	}
	return true
}
