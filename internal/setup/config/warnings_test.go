package config

import (
	"net/netip"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"

	"github.com/google/go-cmp/cmp"
)

func TestWarnings(t *testing.T) {
	const (
		ssp   = "ssps: [{name: a, endpoints: [\"http://127.0.0.1:9000/\"]}]\n"
		fleet = "fleet: {redis: {address: \"127.0.0.1:6379\"}, expected_replicas: 2}\n"
		route = "routes: [{name: r, match: {path: /}, ssps: [a]}]\n"
	)
	withSSP := func(keys string) string {
		return strings.Replace(ssp, "]}", "], "+keys+"}", 1) + route
	}
	withTLS := func(keys string) string { return strings.Replace(withSSP(keys), "http:", "https:", 1) }
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"nothing is odd about the defaults": {ssp + route, nil},
		"a shaper that may work":            {withSSP(`no_bid_body: openrtb, qps: {limit: 40, shape: {keys: ["header:X-Country", "query:slot", "openrtb:/imp/0/banner/w"]}}`), nil},
		"a shaper that drops nothing": {withSSP(`no_bid_body: openrtb, qps: {shape: {keys: ["query:slot"]}}`), []string{
			"ssps[0].qps.shape.keys: drop no request, since limit and max_loss are 0"}},
		"a shaper with max_loss alone":               {withSSP(`no_bid_body: openrtb, qps: {shape: {max_loss: 0.01, keys: ["query:slot"]}}`), nil},
		"a shaper by keys that differ in case alone": {withSSP(`no_bid_body: openrtb, qps: {limit: 40, shape: {keys: ["query:slot", "query:Slot", "openrtb:/app/id", "openrtb:/App/id"]}}`), nil},
		"settings of a shaper without keys": {withSSP("qps: {shape: {max_loss: 0.01, explore: 0.1, dry_run: true}}"), []string{
			"ssps[0].qps.shape.explore: has no effect, since keys is empty",
			"ssps[0].qps.shape.max_loss: has no effect, since keys is empty",
			"ssps[0].qps.shape.dry_run: has no effect, since keys is empty"}},
		"default settings of a shaper without keys": {withSSP("qps: {shape: {max_loss: 0, explore: 0.03, dry_run: false}}"), nil},
		"a dry run of a shaper with few tokens":     {withSSP(`no_bid_body: openrtb, qps: {limit: 9, shape: {dry_run: true, keys: ["query:slot"]}}`), nil},
		"a dry run of a limit with few tokens":      {withSSP(`no_bid_body: openrtb, qps: {limit: 9, dry_run: true, shape: {keys: ["query:slot"]}}`), nil},
		"a shaper that cannot tell no-bids, with few tokens": {withSSP(`qps: {limit: 9, shape: {keys: ["query:slot"]}}`), []string{
			"ssps[0].qps.shape.keys: count each response with a body as a fill, since no_bid_body is none; set it to the format of the SSP's no-bids, unless they are always empty",
			"ssps[0].qps.burst: 9 is below 10; when several requests that shape chose arrive at once, some find no token and end as qps_limit"}},
		"a shaper by values that clients make up": {"server: {trusted_proxies: []}\n" + withSSP(`no_bid_body: vast, qps: {limit: 100, shape: {keys: ["header:X-Country", "openrtb:/app/id", "query:slot"]}}`), []string{
			"ssps[0].qps.shape.keys[0]: clients can make up values of header:X-Country, since server.trusted_proxies is empty; made-up values take room from those that adbuffer has learned",
			"ssps[0].qps.shape.keys[2]: clients can make up values of query:slot, since server.trusted_proxies is empty; made-up values take room from those that adbuffer has learned"}},
		"a shaper that only measures": {withSSP(`no_bid_body: openrtb, qps: {shape: {dry_run: true, keys: ["query:slot"]}}`), nil},
		"more connections than open files": {"server: {max_connections: 100000}\n" + ssp + route, []string{
			"server.max_connections: 99616 are in force on this machine, not 100000: the process may open 100000 files (ulimit -n), which must also be enough for up to 256 connections to SSPs (the sum of pool.max_conns, and one for each endpoint with a health_check) and 128 other files; raise ulimit -n, or lower server.max_connections or pool.max_conns"}},
		"a sample that leaves too little": {"server: {max_buffered_bytes: 67108862}\nadmin: {sample: {requests: 1}}\n" + ssp + route, []string{
			"admin.sample.max_bytes: 33554432 bytes are more than half of server.max_buffered_bytes, of which 67108862 are in force; the sample would leave too little for requests and responses"}},
		"a sample that keeps only short bodies": {"server: {max_buffered_bytes: 67108864}\nadmin: {sample: {requests: 10000, max_bytes: 1048576}}\n" + ssp + route, []string{
			"admin.sample.max_bytes: a minute of admin.sample.max_age has so small a part of 1048576 bytes that bodies over 1092 bytes are not kept; with more, bodies of up to 65536 bytes are"}},
		"a sample of half": {"server: {max_buffered_bytes: 67108864}\nadmin: {sample: {requests: 1}}\n" + ssp + route, nil},
		"one exchange does not fit": {"server: {max_buffered_bytes: 1000000}\n" + ssp + route, []string{
			"server.max_buffered_bytes: 1000000 bytes is less than one request and its response may hold, 1310720 bytes; adbuffer would refuse the largest as overloaded",
			"ssps[0].max_buffered_bytes: 250000 bytes are in force, less than max_response_bytes, 1048576; the largest response would be refused as overloaded"}},
		"an SSP's largest response does not fit": {withSSP("max_buffered_bytes: 1048575"), []string{"ssps[0].max_buffered_bytes: 1048575 bytes are in force, less than max_response_bytes, 1048576; the largest response would be refused as overloaded"}},
		"an SSP's largest request does not fit":  {"server: {max_body_bytes: 1000000}\n" + withSSP("max_buffered_bytes: 1333332"), []string{"ssps[0].max_buffered_bytes: 1333332 bytes are in force, and three quarters of them are less than server.max_body_bytes, 1000000; the largest request would be refused as overloaded"}},
		"an SSP's largest request just fits":     {"server: {max_body_bytes: 1000000}\n" + withSSP("max_buffered_bytes: 1333333"), nil},
		"an SSP's largest response just fits":    {withSSP("max_buffered_bytes: 1048576"), nil},
		"an SSP may hold more than all together": {withSSP("max_buffered_bytes: 268435457"), []string{"ssps[0].max_buffered_bytes: 268435457 bytes are above server.max_buffered_bytes, 268435456, and never reached"}},
		"the default is too short": {"deadline: {default: 9ms}\n" + withSSP("timeouts: {connect: 5ms}, pool: {pending_timeout: 5ms}"), []string{
			"deadline.default: 9ms is below reserve + min_budget, 10ms; requests without a deadline of their own are never sent"}},
		"the default is just enough": {"deadline: {default: 10ms}\n" + withSSP("timeouts: {connect: 5ms}, pool: {pending_timeout: 5ms}"), nil},
		"fewer connections than endpoints": {
			strings.Replace(withSSP("pool: {max_conns: 1}"), `["http://127.0.0.1:9000/"]`, `["http://127.0.0.1:9000/", "http://127.0.0.1:9001/"]`, 1),
			[]string{"ssps[0].pool.max_conns: 1 connections are too few for the 2 endpoints with the lowest priority number; those without a connection get no requests"}},
		"fewer HTTP/2 connections than endpoints": {
			strings.Replace(withTLS("pool: {max_http2_conns: 1}"), `["https://127.0.0.1:9000/"]`, `["https://127.0.0.1:9000/", "https://127.0.0.1:9001/", {url: "https://127.0.0.1:9002/", priority: 1}]`, 1),
			[]string{
				"ssps[0].pool.max_http2_conns: 1 connections of 100 streams are 100 places over HTTP/2, fewer than max_conns, 256, over HTTP/1",
				"ssps[0].pool.max_http2_conns: 1 connections over HTTP/2 are too few for the 2 endpoints with the lowest priority number; those without a connection get no requests"}},
		"every address is trusted": {"server: {trusted_proxies: [\"10.0.0.0/8\", \"::/0\"]}\n" + ssp + route, []string{
			"server.trusted_proxies[1]: ::/0 lets every client claim any address"}},
		"admin beyond loopback":    {"admin: {listen: \":9090\"}\n" + ssp + route, []string{adminWarning(":9090")}},
		"admin on an address":      {"admin: {listen: \"192.0.2.1:9090\"}\n" + ssp + route, []string{adminWarning("192.0.2.1:9090")}},
		"admin on localhost":       {"admin: {listen: \"localhost:9090\"}\n" + ssp + route, nil},
		"admin on IPv6 loopback":   {"admin: {listen: \"[::1]:9090\"}\n" + ssp + route, nil},
		"no queue to share":        {"server: {fairness: {key: client_ip}}\n" + withSSP("pool: {max_pending: 0}"), []string{"ssps[0].pool.max_pending: is 0, so there is no queue in which server.fairness.key could share the places"}},
		"waits beyond the default": {withSSP("pool: {pending_timeout: 300ms}"), []string{"ssps[0].pool.pending_timeout: 300ms is not below deadline.default, 300ms; most waiting requests will fail with outcome deadline, not pending_timeout"}},
		"no queue, no such wait":   {withSSP("pool: {pending_timeout: 300ms, max_pending: 0}"), nil},
		"idle longer than servers": {withSSP("pool: {idle_timeout: 60s}"), []string{"ssps[0].pool.idle_timeout: 1m is not below the 1m after which common servers close idle connections; requests on stale connections will cost retries"}},
		"too old to be idle":       {withSSP("pool: {max_age: 10s}"), []string{"ssps[0].pool.max_age: 10s is below idle_timeout, 55s, which then has no effect"}},
		"few streams": {withTLS("pool: {max_http2_conns: 1, max_streams_per_conn: 10}"), []string{
			"ssps[0].pool.max_http2_conns: 1 connections of 10 streams are 10 places over HTTP/2, fewer than max_conns, 256, over HTTP/1"}},
		"few streams, never used":             {withSSP("pool: {max_http2_conns: 1, max_streams_per_conn: 10}"), nil},
		"request above max":                   {withSSP("timeouts: {request: 6s}"), []string{"ssps[0].timeouts.request: 6s is above deadline.max, 5s, and has no effect"}},
		"a margin that is never taken off":    {withSSP("rewrite_tmax: true, tmax_margin: 20ms, remove: [{path: tmax}]"), []string{"ssps[0].tmax_margin: has no effect, since remove takes tmax out of the body"}},
		"a margin with a conditional removal": {withSSP("rewrite_tmax: true, tmax_margin: 20ms, remove: [{path: tmax, when: [{path: app, exists: true}]}]"), nil},
		"a margin of the whole default":       {withSSP("rewrite_tmax: true, tmax_margin: 295ms"), []string{"ssps[0].tmax_margin: 295ms is not below deadline.default less deadline.reserve, 295ms; a request with that deadline would tell the SSP a tmax of 1"}},
		"a margin of almost the default":      {withSSP("rewrite_tmax: true, tmax_margin: 294ms"), nil},
		"slow connect":                        {withSSP("timeouts: {connect: 1s}"), []string{"ssps[0].timeouts.connect: 1s is not below deadline.default, 300ms; a request that waits for a dial may have no time left for the response"}},
		"unverified":                          {withTLS("tls: {insecure_skip_verify: true}"), []string{"ssps[0].tls.insecure_skip_verify: a machine between adbuffer and the SSP can read and change requests and responses"}},
		"TLS of an http endpoint": {withSSP("tls: {ca_file: \"\", server_name: ssp.example, insecure_skip_verify: true}"), []string{
			"ssps[0].tls: is not used: the endpoints are http, so requests and responses cross the network in cleartext"}},
		"a PROXY header, and no trusted peer": {"server: {proxy_protocol: true, trusted_proxies: []}\n" + ssp + route, []string{
			"server.proxy_protocol: has no effect, since server.trusted_proxies is empty; a PROXY header from any peer is a bad request"}},
		"a PROXY header on a unix socket": {"server: {listen: \"unix:/tmp/a.sock\", proxy_protocol: true, trusted_proxies: []}\n" + ssp + route, nil},
		"an id without a field": {"server: {request_id: {header: \"\", to_ssp: true}}\n" + ssp + route, []string{
			"server.request_id.to_ssp: has no effect, since header is empty"}},
		"slow requests without an access log": {"log: {access: {slow: 100ms}}\n" + ssp + route, []string{
			"log.access.slow: has no effect, since log.access.enabled is false"}},
		"a share of the requests above all":             {withSSP("max_in_flight: 16385"), []string{"ssps[0].max_in_flight: 16385 is above server.max_in_flight, 16384, and never reached"}},
		"more warm connections than HTTP/2":             {withSSP("protocol: h2c, pool: {min_idle: 5}"), []string{"ssps[0].pool.min_idle: 5 is above max_http2_conns, 4, and never reached"}},
		"more warm connections, if ALPN chooses HTTP/2": {withTLS("pool: {min_idle: 5}"), nil},
		"a margin of a route's whole timeout": {"ssps: [{name: a, endpoints: [\"http://127.0.0.1:9000/\"], rewrite_tmax: true, tmax_margin: 20ms}]\n" + strings.Replace(route, "ssps: [a]", "mode: waterfall, ssps: [{name: a, timeout: 20ms}]", 1), []string{
			"routes[0].ssps[0].timeout: 20ms is not above tmax_margin of a, 20ms; requests would tell the SSP a tmax of 1"}},
		"a margin below a route's timeout": {"ssps: [{name: a, endpoints: [\"http://127.0.0.1:9000/\"], rewrite_tmax: true, tmax_margin: 19ms}]\n" + strings.Replace(route, "ssps: [a]", "mode: waterfall, ssps: [{name: a, timeout: 20ms}]", 1), nil},
		"a step above max": {ssp + strings.Replace(route, "ssps: [a]", "mode: waterfall, ssps: [{name: a, timeout: 6s}]", 1), []string{
			"routes[0].ssps[0].timeout: 6s is above deadline.max, 5s, and has no effect"}},
		"sources of the other family": {withSSP("source_addresses: [\"::1\"]"), []string{
			"ssps[0].endpoints[0]: cannot be reached, since no source address matches its IP family"}},
		"sources of both families": {withSSP("source_addresses: [\"::1\", 127.0.0.2]"), nil},
		"hedge without retries":    {withSSP("retry: {max: 0}, hedge: {enabled: true}"), []string{"ssps[0].hedge.enabled: hedged requests are sent although retry.max is 0"}},
		"a share of 0": {strings.Replace(ssp, "}]", "}, {name: b, endpoints: [\"http://127.0.0.1:9001/\"]}]", 1) + "routes: [{name: r, match: {path: /}, mode: split, ssps: [{name: a}, {name: b, weight: 0}]}]\n", []string{
			"routes[0].ssps[1].weight: is 0, so b gets no requests; client_choice would let clients choose it"}},
		"a share of 0, for clients that choose": {strings.Replace(ssp, "}]", "}, {name: b, endpoints: [\"http://127.0.0.1:9001/\"]}]", 1) + "routes: [{name: r, match: {path: /}, mode: split, client_choice: true, ssps: [{name: a}, {name: b, weight: 0}]}]\n", nil},
		"a fleet's limit":                       {fleet + withSSP("qps: {limit: 100, scope: fleet}"), nil},
		"a fleet's limit of 0": {fleet + withSSP("qps: {scope: fleet}"), []string{
			"ssps[0].qps.scope: fleet has no effect, since limit is 0"}},
		"a burst that leases cannot keep up with": {fleet + withSSP("qps: {limit: 1000, burst: 20, scope: fleet}"), []string{
			"ssps[0].qps.burst: 20 is less than limit allows in four lease intervals, 80; the fleet will send less than limit: raise burst, or lower fleet.lease_interval"}},
		"a small burst of one process": {fleet + withSSP("qps: {limit: 1000, burst: 20}"), []string{
			"fleet.redis.address: no SSP has qps.scope fleet, so adbuffer does not use Redis"}},
		"a password in cleartext": {"fleet: {redis: {address: \"redis.internal:6379\", password_file: testdata/redis-password}, expected_replicas: 2}\n" + withSSP("qps: {limit: 1, scope: fleet}"), []string{
			"fleet.redis.password_file: the password crosses the network in cleartext; tls.enabled would encrypt it"}},
		"TLS keys without TLS": {"fleet: {redis: {address: \"redis.internal:6379\", tls: {server_name: r}}, expected_replicas: 2}\n" + withSSP("qps: {limit: 1, scope: fleet}"), []string{
			"fleet.redis.tls.enabled: is false, so the other keys of fleet.redis.tls are not used"}},
		"unverified Redis": {"fleet: {redis: {address: \"redis.internal:6379\", tls: {enabled: true, insecure_skip_verify: true}}, expected_replicas: 2}\n" + withSSP("qps: {limit: 1, scope: fleet}"), []string{
			"fleet.redis.tls.insecure_skip_verify: a machine between adbuffer and Redis can read the password and change the limits"}},
		"unused": {twoSSPsUnused, []string{
			"ssps[1]: no route uses b"}},
		"single of two": {strings.Replace(twoSSPsUnused, "[a]", "[a, b]", 1), []string{
			"routes[0].ssps: mode single asks no SSP after a; client_choice would let clients choose another SSP"}},
		"single, if a holds":      {strings.NewReplacer("[a]", "[a, b]", "- {name: a,", "- {name: a, when: [{tcf: {vendor: 1}}],").Replace(twoSSPsUnused), nil},
		"single with a condition": {strings.Replace(twoSSPsUnused, "[a]", "[{name: a, when: [{path: app, exists: true}]}, b]", 1), nil},
		"unreachable": {ssp + "routes:\n" +
			"  - {name: first, match: {path: /a/*, query: [{name: q}]}, ssps: [a]}\n" +
			"  - {name: below, match: {path: /a/b, query: [{name: q, value: v}], host: h.example}, ssps: [a]}\n" +
			"  - {name: other, match: {path: /a/b}, ssps: [a]}\n" +
			"  - {name: beside, match: {path: /a}, ssps: [a]}\n", []string{
			"routes[1].match: is never reached: route first matches all of its requests first"}},
		"host tells routes apart": {ssp + "routes:\n" +
			"  - {name: first, match: {path: /*, host: a.example}, ssps: [a]}\n" +
			"  - {name: second, match: {path: /*, header: [{name: X-A}]}, ssps: [a]}\n" +
			"  - {name: third, match: {path: /*, header: [{name: x-b}]}, ssps: [a]}\n" +
			"  - {name: fourth, match: {path: /x, header: [{name: x-a, value: v}]}, ssps: [a]}\n", []string{
			"routes[3].match: is never reached: route second matches all of its requests first"}},
	} {
		t.Run(name, func(t *testing.T) {
			wantWarnings(t, warnings(mustParse(t, c.text), machine{Machine: Machine{OpenFiles: 100_000}}, everyKey), c.want...)
		})
	}
}

func wantWarnings(t *testing.T, warnings []Warning, want ...string) {
	t.Helper()
	var got []string
	for _, w := range warnings {
		got = append(got, w.String())
	}
	testsupport.Equal(t, cmp.Diff(want, got), "", "-want +got:\n%s")
}

const twoSSPsUnused = `
ssps:
  - {name: a, endpoints: ["http://127.0.0.1:9000/"]}
  - {name: b, endpoints: ["http://127.0.0.1:9001/"]}
routes: [{name: r, match: {path: /}, ssps: [a]}]
`

func adminWarning(listen string) string {
	return "admin.listen: " + listen + " is reachable from other machines and there is no admin.token_file and no admin.client_ca_file; all but /metrics, /healthz and /readyz will respond 403"
}

func TestH2CBesideTLSWarns(t *testing.T) {
	cfg := mustParse(t, twoSSPs)
	cfg.Server.H2C, cfg.Server.TLS.CertFile = true, "server.pem"
	wantWarnings(t, warnings(cfg, machine{}, everyKey), "server.h2c: is not used with server.tls; over TLS, clients choose HTTP/2 by ALPN")
}

func TestSourceAddressesOfAnotherMachineWarn(t *testing.T) {
	cfg := mustParse(t, twoSSPs)
	cfg.SSPs[0].SourceAddresses = []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.8")}
	wantWarnings(t, warnings(cfg, machine{addrs: []netip.Addr{netip.MustParseAddr("192.0.2.7")}}, everyKey), "ssps[0].source_addresses[2]: no interface of this machine has 192.0.2.8; every dial from it would fail")
	wantWarnings(t, warnings(cfg, machine{}, everyKey))
}

func TestShortTokenWarns(t *testing.T) {
	cfg := mustParse(t, twoSSPs)
	cfg.Admin.Token = newSecret("hunter2")
	wantWarnings(t, warnings(cfg, machine{}, everyKey), "admin.token_file: the token has 7 bytes and can be guessed; 16 random bytes cannot")
	cfg.Admin.Token = newSecret("0123456789abcdef")
	wantWarnings(t, warnings(cfg, machine{}, everyKey))
}

func TestAParentCgroupThatAllowsLessCPUThanGOMAXPROCSWarns(t *testing.T) {
	for _, c := range []struct {
		procs int
		cpus  float64
		warns bool
	}{{4, 1.5, true}, {3, 2, true}, {2, 1.5, false}, {2, 2, false}} {
		got := warnings(mustParse(t, twoSSPs), machine{procs: c.procs, cpus: c.cpus, cpusFrom: "/sys/fs/cgroup/pod"}, everyKey)
		testsupport.True(t, len(got) > 0 == c.warns, "%+v: %v", c, got)
	}
	want := "server.overload: the cgroup /sys/fs/cgroup/pod allows 1.5 CPUs, but GOMAXPROCS is 4, since Go reads only the limit of the process's own cgroup; the kernel will throttle adbuffer: set GOMAXPROCS to 2"
	wantWarnings(t, warnings(mustParse(t, twoSSPs), machine{procs: 4, cpus: 1.5, cpusFrom: "/sys/fs/cgroup/pod"}, everyKey), want)
	wantWarnings(t, warnings(mustParse(t, twoSSPs), machine{procs: 4}, everyKey))
}

func TestUnknownOpenFilesLimitWarnsOfNothing(t *testing.T) {
	cfg := mustParse(t, twoSSPs)
	cfg.Server.MaxConnections = 10_000_000
	wantWarnings(t, warnings(cfg, machine{}, everyKey))
}

// Fifty SSPs with the same fault give one warning, and not fifty equal warnings.
func TestAFaultOfSeveralSSPsIsOneWarning(t *testing.T) {
	list := func(keys string, names ...string) string {
		var all []string
		for _, name := range names {
			all = append(all, "{name: "+name+", endpoints: [\"http://127.0.0.1:9000/\"]"+keys+"}")
		}
		return "ssps: [" + strings.Join(all, ", ") + "]\nroutes: [{name: r, match: {path: /}, mode: split, ssps: [" + strings.Join(names, ", ") + "]}]\n"
	}
	const tooOld = "pool.max_age: 10s is below idle_timeout, 55s, which then has no effect"
	for text, want := range map[string]string{
		list("", "a", "b"):                                               "",
		list(", pool: {max_age: 10s}", "a"):                              "ssps[0]." + tooOld,
		list(", pool: {max_age: 10s}", "a", "b", "c"):                    "ssps[0]." + tooOld + "; the same for b, c",
		list(", pool: {max_age: 10s}", strings.Split("abcdefgh", "")...): "ssps[0]." + tooOld + "; the same for b, c, d, e, f and 2 other SSPs",
		"ssp_defaults: {pool: {max_age: 10s}}\n" + list("", "a", "b"):    "ssp_defaults." + tooOld,
	} {
		_, warnings, err := Parse([]byte(text), nil)
		testsupport.NoError(t, err)
		var got []string
		for _, w := range warnings {
			if w.Path != "server.max_connections" { // depends on this machine
				got = append(got, w.String())
			}
		}
		testsupport.True(t, strings.Join(got, "\n") == want, "got  %v\nwant %s", got, want)
	}
}

// everyKey is for warnings about a configuration of which each key is set.
func everyKey(string) bool { return true }

// A default that the machine lowers is no warning: the operator has not asked for it.
func TestADefaultThatTheMachineLowersIsNoWarning(t *testing.T) {
	cfg := mustParse(t, "ssps: [{name: a, endpoints: [\"http://127.0.0.1:9000/\"]}]\nroutes: [{name: r, match: {path: /}, ssps: [a]}]\n")
	small := machine{Machine: Machine{OpenFiles: 1024, Memory: 64 << 20, MemoryFrom: "of the test"}}
	cfg.Machine = small.Machine
	wantWarnings(t, warnings(cfg, small, func(string) bool { return false }))
	testsupport.Equal(t, len(warnings(cfg, small, everyKey)), 2, "%d warnings about keys that are set")
}
