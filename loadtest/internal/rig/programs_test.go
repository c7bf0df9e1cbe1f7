package rig

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// A real nginx forwards on every route that its template makes.
func TestProgramsForwardOnEachRoute(t *testing.T) {
	testsupport.Needs(t, "nginx-light", "/usr/sbin/nginx")
	succeed(t, func(r *Rig) {
		cert := r.Certificate("test", "localhost", "127.0.0.1")
		up := &Route{Name: "up", TLS: cert, Serve: `location / { return 200 'as it is'; }`}
		r.StartProgram("nginx", "", "", up)
		plain := &Route{Name: "plain", Upstreams: []string{"https://" + up.Addr}, CAFile: cert.CA}
		encrypted := &Route{Name: "encrypted", Upstreams: []string{"https://" + up.Addr}, CAFile: cert.CA, TLS: cert}
		r.StartProgram("nginx", "", "", plain, encrypted)
		client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
		defer client.CloseIdleConnections()
		for url, proto := range map[string]string{"http://" + plain.Addr: "HTTP/1.1", "https://" + encrypted.Addr: "HTTP/2.0"} {
			resp := Must(client.Get(url))(r)
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(body) != "as it is" || resp.Proto != proto {
				t.Errorf("%s: %q over %s, %v", url, body, resp.Proto, err)
			}
		}
	})
}

// The text of every template for a route that uses all fields.
func TestEachTemplateHasEveryRoute(t *testing.T) {
	cert := &Certificate{CA: "/ca.pem", Cert: "/cert.pem", Key: "/cert.pem.key"}
	routes := []*Route{{Name: "one", Upstreams: []string{"https://127.0.0.1:7001", "https://127.0.0.1:7002"}, CAFile: "/upstream.pem", HTTP2: true, TLS: cert, Adaptive: true, Addr: "127.0.0.1:7003"},
		{Name: "two", Upstreams: []string{"http://127.0.0.1:7004"}, Addr: "127.0.0.1:7005"}}
	files, err := configurations.ReadDir("programs")
	testsupport.MustTrue(t, err == nil && len(files) == 4, "%d templates, %v", len(files), err)
	for _, f := range files {
		name := f.Name()
		text, err := configurations.ReadFile("programs/" + name)
		testsupport.MustTrue(t, err == nil && programs[name] != "", "%s: no such program, or %v", name, err)
		got, err := fill(string(text), map[string]any{"Name": name, "Dir": "/dir", "HTTP": "", "Routes": routes, "Admin": "127.0.0.1:7006"})
		testsupport.MustTrue(t, err == nil, "%s: %v", name, err)
		for _, want := range []string{"7001", "7002", "7003", "7004", "7005"} {
			testsupport.True(t, strings.Contains(got, want), "%s: no %s in:\n%s", name, want, got)
		}
		if !strings.Contains(got, "/cert.pem") || name != "haproxy" && !strings.Contains(got, "/cert.pem.key") {
			t.Errorf("%s: no certificate in:\n%s", name, got)
		}
		if name == "envoy" && (!strings.Contains(got, "port_value: 7006") || strings.Count(got, "gradient_controller_config") != 1) {
			t.Errorf("one route limits by latency, and there is an admin listener, but not in:\n%s", got)
		}
		testsupport.True(t, name == "nginx" || strings.Contains(got, "/upstream.pem"), "%s trusts any upstream:\n%s", name, got)
	}
}
