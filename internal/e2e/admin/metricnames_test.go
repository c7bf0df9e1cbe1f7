package admin

import (
	"fmt"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/e2e"
	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

var (
	tlsReasons = []string{"timeout", "closed", "refused", "certificate", "version", "mismatch", "alpn", "invalid"}
	tlsGroups  = []string{"X25519MLKEM768", "SecP256r1MLKEM768", "SecP384r1MLKEM1024", "x25519", "secp256r1", "secp384r1", "secp521r1", "other"}
)

// outcomes returns the values of the label outcome for these requests. The contract list pins the names.
func outcomes(of upstream.Ends) (all []string) {
	for o := range upstream.Outcomes {
		if o.Row().Ends&of != 0 {
			all = append(all, o.String())
		}
	}
	return all
}

// promisedMetrics is every metric that dashboards may rely on: its type, and the
// values of its labels. Each series exists from the start, where what it counts can happen.
var promisedMetrics = []struct {
	name, typ string
	labels    map[string][]string // nil: none
}{
	{"requests_total", "counter", map[string][]string{"route": {"default"}, "outcome": outcomes(upstream.Routed)}},
	{"requests_total", "counter", map[string][]string{"route": {"none"}, "outcome": outcomes(upstream.Unrouted)}},
	{"request_duration_seconds", "histogram", map[string][]string{"route": {"default", "none"}}},
	{"in_flight_requests", "gauge", nil},
	{"in_flight_requests_limit", "gauge", nil},
	{"uploads", "gauge", nil},
	{"uploads_limit", "gauge", nil},
	{"uploads_dropped_total", "counter", nil},
	{"admin_connections", "gauge", nil},
	{"admin_connections_limit", "gauge", nil},
	{"admin_connections_dropped_total", "counter", nil},
	{"log_suppressed_total", "counter", nil},
	{"client_connections", "gauge", nil},
	{"client_connections_limit", "gauge", nil},
	{"client_connections_dropped_total", "counter", nil},
	{"client_connections_unfinished_dropped_total", "counter", map[string][]string{"stage": {"handshake", "head"}}},
	{"client_responses_dropped_total", "counter", nil},
	{"buffered_bytes", "gauge", nil},
	{"buffered_bytes_limit", "gauge", nil},
	{"ssp_requests_total", "counter", map[string][]string{"ssp": {"a", "b"}, "outcome": outcomes(upstream.AtSSP)}},
	{"ssp_request_duration_seconds", "histogram", bySSP},
	{"ssp_first_byte_seconds", "histogram", bySSP},
	{"ssp_buffered_bytes", "gauge", bySSP},
	{"ssp_buffered_bytes_limit", "gauge", bySSP},
	{"masked_total", "counter", map[string][]string{"route": {"default"}}},
	{"openrtb_unreadable_total", "counter", map[string][]string{"reason": {"syntax", "not_object", "depth", "twice", "encoding", "media_type"}}},
	{"no_ad_total", "counter", map[string][]string{"route": {"default"}, "origin": {"proxy", "ssp"}}},
	{"pool_connections", "gauge", map[string][]string{"ssp": {"a", "b"}, "protocol": {"http1", "http2"}, "state": {"idle", "active", "draining"}}},
	{"pool_connections", "gauge", map[string][]string{"ssp": {"a", "b"}, "state": {"dialing"}}},
	{"pool_connections_limit", "gauge", bySSP},
	{"pool_places_in_use", "gauge", bySSP},
	{"pool_places_limit", "gauge", bySSP},
	{"pool_saturation_ratio", "gauge", bySSP},
	{"pool_saturation_max_ratio", "gauge", bySSP},
	{"pool_saturation_at_arrival_ratio", "histogram", bySSP},
	{"pool_hold_seconds", "histogram", bySSP},
	{"pool_pending_requests", "gauge", bySSP},
	{"pool_pending_requests_limit", "gauge", bySSP},
	{"pool_acquire_seconds", "histogram", map[string][]string{"ssp": {"a", "b"}, "outcome": {"reused", "dialed", "waited", "full", "timeout"}}},
	{"pool_connections_opened_total", "counter", map[string][]string{"ssp": {"a", "b"}, "protocol": {"http1", "http2"}}},
	{"pool_connections_closed_total", "counter", map[string][]string{"ssp": {"a", "b"},
		"reason": {"idle", "max_age", "max_requests", "peer_closed", "unsolicited", "leftover", "goaway", "timeout", "error", "drain"}}},
	{"pool_requests_per_connection", "histogram", bySSP},
	{"pool_idle_age_seconds", "histogram", bySSP},
	{"pool_dial_seconds", "histogram", map[string][]string{"ssp": {"a", "b"}, "phase": {"dns", "tcp", "tls"}}},
	{"pool_dials_limit", "gauge", bySSP},
	{"pool_dial_errors_total", "counter", map[string][]string{"ssp": {"a", "b"}, "endpoint": {anEndpoint}, "kind": {"dns", "refused", "timeout", "reset", "tls", "alpn", "local", "other"}}},
	{"endpoint_requests_total", "counter", map[string][]string{"ssp": {"a", "b"}, "endpoint": {anEndpoint},
		"outcome": {"fill", "no_bid", "redirect", "client_error", "server_error", "conn_lost", "bad_response", "response_too_large", "too_large", "overloaded", "deadline", "client_gone", "cancelled", "internal"}}},
	{"endpoint_connections", "gauge", byEndpoint},
	{"endpoint_checks_total", "counter", map[string][]string{"ssp": {"a", "b"}, "endpoint": {anEndpoint}, "result": {"failed", "ok"}}},
	{"endpoint_state", "gauge", map[string][]string{"ssp": {"a", "b"}, "endpoint": {anEndpoint}, "state": {"disabled", "draining", "ejected", "unhealthy", "enabled"}}},
	{"endpoint_ejections_total", "counter", byEndpoint},
	{"endpoint_request_duration_seconds", "histogram", byEndpoint},
	{"ssp_state", "gauge", map[string][]string{"ssp": {"a", "b"}, "state": {"disabled", "draining", "enabled"}}},
	{"pool_http2_demotions_total", "counter", bySSP},
	{"pool_stale_connections_total", "counter", bySSP},
	{"retries_refused_total", "counter", map[string][]string{"ssp": {"a", "b"}, "kind": {"not_sent", "stale", "hedge"}}},
	{"hedges_won_total", "counter", bySSP},
	{"retries_total", "counter", map[string][]string{"ssp": {"a", "b"}, "kind": {"not_sent", "not_processed", "stale", "hedge"}}},
	{"ssp_retry_after_responses_total", "counter", map[string][]string{"ssp": {"a", "b"}, "effect": {"paused", "ignored"}}},
	{"pool_advised_connections", "gauge", bySSP},
	{"pool_full_in_seconds", "gauge", bySSP},
	{"fairness_evicted_total", "counter", bySSP},
	{"fairness_active_queues", "gauge", bySSP},
	{"pool_headroom_ratio", "gauge", bySSP},
	{"pool_learned_idle_seconds", "gauge", bySSP},
	{"pool_warm", "gauge", bySSP},
	{"pools_draining", "gauge", nil},
	{"client_tls_handshakes_total", "counter", map[string][]string{"resumed": {"false", "true"}}},
	{"client_tls_handshake_errors_total", "counter", map[string][]string{"reason": tlsReasons}},
	{"client_tls_handshakes_by_version_total", "counter", map[string][]string{"version": {"1.2", "1.3"}}},
	{"client_tls_handshakes_by_group_total", "counter", map[string][]string{"group": tlsGroups}},
	{"tls_handshake_errors_total", "counter", map[string][]string{"ssp": {"a", "b"}, "reason": tlsReasons}},
	{"tls_handshakes_by_version_total", "counter", map[string][]string{"ssp": {"a", "b"}, "version": {"1.2", "1.3"}}},
	{"tls_handshakes_by_group_total", "counter", map[string][]string{"ssp": {"a", "b"}, "group": tlsGroups}},
	{"tls_small_hello_retries_total", "counter", map[string][]string{"ssp": {"a", "b"}, "result": {"good", "failed"}}},
	{"client_tls_handshakes_in_progress", "gauge", nil},
	{"client_http2_errors_total", "counter", nil},
	{"pipeline_head_wait_seconds", "histogram", map[string][]string{"ssp": {"pipelined"}}},
	{"pool_connections_opened_total", "counter", map[string][]string{"ssp": {"pipelined"}, "protocol": {"http1-pipelined"}}},
	{"dns_failing_names", "gauge", bySSP},
	{"ssp_client_certificate_expiry_timestamp_seconds", "gauge", bySSP},
	{"breaker_shed_ratio", "gauge", bySSP},
	{"qps_limited_total", "counter", bySSP},
	{"concurrency_limit", "gauge", bySSP},
	{"panics_total", "counter", nil},
	{"overload_lag_seconds", "gauge", nil},
	{"overload_refused_total", "counter", byPriority},
	{"overload_dry_run_total", "counter", byPriority},
	{"config_last_reload_successful", "gauge", nil},
	{"config_last_reload_success_timestamp_seconds", "gauge", nil},
	{"config_info", "gauge", nil},
	{"tls_handshakes_total", "counter", map[string][]string{"ssp": {"a", "b"}, "kind": {"full", "resumed", "failed"}}},
	{"dns_lookups_total", "counter", map[string][]string{"ssp": {"a", "b"}, "result": {"good", "failed"}}},
	{"dns_addresses_dropped_total", "counter", map[string][]string{"ssp": {"a", "b"}, "reason": {"forbidden", "too_many"}}},
	{"http2_cipher_refused_total", "counter", bySSP},
	{"ssp_client_certificate_reloads_total", "counter", map[string][]string{"ssp": {"a", "b"}, "result": {"good", "failed"}}},
	{"build_info", "gauge", nil},
	{"ssp_responses_total", "counter", map[string][]string{"ssp": {"a", "b"}, "code": {"200", "204", "429", "500", "503", "other"}}},
	{"ssp_request_size_bytes", "histogram", bySSP},
	{"ssp_response_size_bytes", "histogram", bySSP},
	{"ssp_sent_bytes_total", "counter", bySSP},
	{"ssp_received_bytes_total", "counter", bySSP},
	{"client_sent_bytes_total", "counter", nil},
	{"client_received_bytes_total", "counter", nil},
	{"log_dropped_total", "counter", nil},
	{"memory_limit_bytes", "gauge", nil},
	{"limit_refused_total", "counter", map[string][]string{"limit": {"max_buffered_bytes", "max_connections", "max_in_flight"}}},
}

var (
	byPriority = map[string][]string{"priority": {"normal", "sheddable", "critical"}}
	bySSP      = map[string][]string{"ssp": {"a", "b"}}
	byEndpoint = map[string][]string{"ssp": {"a", "b"}, "endpoint": {anEndpoint}}
)

// anEndpoint replaces the host:port of the simulated SSP.
const anEndpoint = "(endpoint)"

func TestEveryMetricExistsFromTheStartWithItsLabels(t *testing.T) {
	t.Parallel()
	files := e2e.NewAuthority(t)
	const used = "health_check: {path: /health, interval: 1h}, hedge: {enabled: true}, qps: {limit: 1000}, pool: {max_requests_per_conn: 1000}"
	endpoint := "https://localhost:9/"
	m := e2e.Start(t, files.ServerSection(", fairness: {key: client_ip}")+fmt.Sprintf(`
ssps:
  - {name: a, endpoints: [%[1]q], %[2]s, %[3]s}
  - {name: b, endpoints: [%[1]q], %[2]s, %[3]s}
  - {name: pipelined, endpoints: ["http://127.0.0.1:9/"], protocol: http1-pipelined}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [a, b, pipelined]}
`, endpoint, used, files.SSPSection())).Scrape()
	for _, p := range promisedMetrics {
		name := "adbuffer_" + p.name
		if got := m.Types[name]; got != p.typ {
			t.Errorf("%s is a %q, want a %s", name, got, p.typ)
			continue
		}
		if p.typ == "histogram" {
			name += "_count"
		}
		for _, labels := range combinations(p.labels) {
			for i := range labels {
				labels[i] = strings.Replace(labels[i], anEndpoint, hostPort(t, endpoint), 1)
			}
			found := m.All(name, labels...)
			if len(found) != 1 {
				t.Errorf("%d series %s%v, want 1", len(found), name, labels)
				continue
			}
			// Health checks fail from the start.
			if p.typ != "gauge" && found[0].Value != 0 && p.name != "endpoint_checks_total" {
				t.Errorf("%s%v starts at %v", name, labels, found[0].Value)
			}
			if n := strings.Count(found[0].Labels, "="); len(p.labels) > 0 && n != len(p.labels) && p.name != "pool_connections" {
				t.Errorf("%s has the labels %s, want %d", name, found[0].Labels, len(p.labels))
			}
		}
	}
}

// The set of series does not grow with traffic. What cannot happen has none.
func TestSeriesAreThereFromTheStartIfTheyCanChange(t *testing.T) {
	t.Parallel()
	ab := e2e.Start(t, fmt.Sprintf(`
ssps:
  - {name: a, endpoints: [%[1]q]}
  - {name: b, endpoints: [%[1]q]}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [a, b]}
`, e2e.Healthy(t).URL()))
	m := ab.Scrape()
	series := 0
	for name, all := range m.Series {
		if strings.HasPrefix(name, "adbuffer_") {
			series += len(all)
		}
	}
	for name, labels := range map[string]string{
		"ssp_requests_total": "outcome=no_route", "requests_total": "outcome=cancelled", "endpoint_state": "state=unhealthy", "endpoint_checks_total": "ssp=a",
		"tls_handshakes_total": "ssp=a", "dns_lookups_total": "ssp=a", "hedges_won_total": "ssp=a", "pipeline_head_wait_seconds_count": "ssp=a", "fairness_evicted_total": "ssp=a", "fairness_active_queues": "ssp=a",
		"pool_connections": "protocol=http2", "pool_connections_closed_total": "reason=goaway", "pool_dial_errors_total": "kind=tls",
	} {
		if found := m.All("adbuffer_"+name, labels); len(found) > 0 {
			t.Errorf("%s with %s has %d series", name, labels, len(found))
		}
	}
	c := ab.Dial()
	c.Get("/fillbuffer").WantFill("a")
	c.Get("/other")
	c.Do("PUT", "/", "")
	after := 0
	for name, all := range ab.Scrape().Series {
		if strings.HasPrefix(name, "adbuffer_") {
			after += len(all)
		}
	}
	if after != series {
		t.Errorf("%d series at the start, %d after traffic", series, after)
	}
	t.Logf("%d series for 2 SSPs and a route", series)
}

// hostPort returns the host:port of a URL.
func hostPort(t *testing.T, u string) string {
	t.Helper()
	parsed, err := url.Parse(u)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Host
}

// combinations returns all label sets, each as name=value.
func combinations(labels map[string][]string) [][]string {
	all := [][]string{nil}
	for name, values := range labels {
		var next [][]string
		for _, set := range all {
			for _, v := range values {
				next = append(next, append(slices.Clone(set), name+"="+v))
			}
		}
		all = next
	}
	return all
}

func TestPromtoolAcceptsTheMetrics(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(s.URL()))
	ab.Get("/fillbuffer").WantFill("openx")
	_, text := ab.AskAdmin("/metrics")
	cmd := exec.Command(testsupport.Needs(t, "prometheus", "promtool"), "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v: %s", err, out)
	}
}
