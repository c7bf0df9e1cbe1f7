package manifesttest

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"adbuffer/internal/testsupport"
)

var (
	simListens = regexp.MustCompile(`simulated SSP, listening on (http://\S+)`)
	listens    = regexp.MustCompile(`"msg":"starting".*"listen":"([^"]+)"`)
	admins     = regexp.MustCompile(`"msg":"starting".*"admin":"([^"]+)"`)
	drains     = regexp.MustCompile(`"msg":"(draining)"`)
	stopped    = regexp.MustCompile(`"msg":"(stopped)"`)
)

// running is a pod's adbuffer with the container's own arguments and variables, as the kubelet runs
// it. But it has free ports, and simulated SSPs: one for each region of the first SSP.
type running struct {
	*process
	near, far *simulated
	pod       *pod
	traffic   string // host:port, or a unix socket's path
	admin     string // URL
}

func run(t *testing.T, o objects, a *adbufferPod, env ...string) *running {
	t.Helper()
	near, far := simulate(t, testsupport.FreeAddr(t)), simulate(t, testsupport.FreeAddr(t)) // a test starts one again
	p := layOut(t, o, a.spec)
	all := append(p.env(t, a.container), "ADBUFFER_SSPS_OPENX_ENDPOINTS_0_URL="+near.url, "ADBUFFER_SSPS_OPENX_ENDPOINTS_1_URL="+far.url, "ADBUFFER_SSPS_BACKUP_ENDPOINTS_0="+near.url, "ADBUFFER_ADMIN_LISTEN=:0")
	r := &running{near: near, far: far, pod: p, process: start(t, append(all, env...), as(a.spec, a.container), binary(t), p.args(a.container)...)}
	r.traffic = r.await(listens)
	_, port, err := net.SplitHostPort(r.await(admins))
	testsupport.NoError(t, err)
	r.admin = "http://127.0.0.1:" + port
	testsupport.Eventually(t, "startupProbe succeeds", func() bool {
		return get(t, "", r.admin+a.container.StartupProbe.HTTPGet.Path).status == http.StatusOK
	})
	for _, probe := range []string{a.container.ReadinessProbe.HTTPGet.Path, a.container.LivenessProbe.HTTPGet.Path} {
		if got := get(t, "", r.admin+probe); got.status != http.StatusOK {
			t.Fatalf("probe of %s: %d %s", probe, got.status, got.body)
		}
	}
	return r
}

// simulated is a simulated SSP.
type simulated struct {
	*process
	addr, url string
}

func simulate(t *testing.T, listen string) *simulated {
	t.Helper()
	s := &simulated{process: start(t, nil, nil, binary(t), "sim", "--listen", listen)}
	s.url = s.await(simListens)
	u, err := url.Parse(s.url)
	testsupport.NoError(t, err)
	s.addr = u.Host
	return s
}

func the(t *testing.T, o objects, name string) *adbufferPod {
	t.Helper()
	a := o.adbuffers()[name]
	testsupport.MustTrue(t, a != nil, "no adbuffer in Deployment %s", name)
	return a
}

func isAd(a response) bool {
	return a.status == http.StatusOK && a.header.Get("X-Adbuffer-Source") == "ssp/openx" && strings.Contains(a.body, "seatbid")
}

// wantAd sends requests until an ad of openx comes. On a slow machine the first request may miss the
// manifest's deadline.
func wantAd(t *testing.T, socket, url string) {
	t.Helper()
	var last response
	defer func() {
		if t.Failed() {
			t.Logf("the last response: %d %v\n%s", last.status, last.header, last.body)
		}
	}()
	testsupport.Eventually(t, "an ad of openx", func() bool {
		last = get(t, socket, url)
		return isAd(last)
	})
}

func TestEdgePodServesAdsReloadsAndDrains(t *testing.T) {
	t.Parallel()
	o := mustDecode(t, renderOverlay(t, overlaysDir+"/edge"))
	a := the(t, o, "adbuffer")
	r := run(t, o, a, "ADBUFFER_SERVER_LISTEN=127.0.0.1:0", "ADBUFFER_DEADLINE_DEFAULT=2s", "ADBUFFER_ROUTES_DEFAULT_SSPS_OPENX_TIMEOUT=2s")
	wantAd(t, "", "http://"+r.traffic+"/fillbuffer?pub=1")

	// The token is for the operators' pages. Prometheus and the kubelet need none.
	for _, c := range []struct {
		path, token string
		want        int
	}{{"/pools", "", 403}, {"/pools", "wrong", 403}, {"/pools", adminToken, 200}, {"/metrics", "", 200}} {
		if got := get(t, "", r.admin+c.path, "Authorization", "Bearer "+c.token); got.status != c.want {
			t.Errorf("%s with token %q: %d, want %d", c.path, c.token, got.status, c.want)
		}
	}

	// The metrics of the adapter's rule exist, and GOMEMLIMIT is 95 % of the limit.
	metrics := get(t, "", r.admin+"/metrics").body
	for _, series := range []string{adapterMetric + `{ssp="openx"} `, adapterMetric + `{ssp="backup"} `, `adbuffer_breaker_shed_ratio{ssp="openx"} `} {
		testsupport.True(t, strings.Contains(metrics, "\n"+series), "no series %s", series)
	}
	limit := float64(a.container.Resources.Limits.Memory().Value())
	if got := gauge(t, metrics, "go_gc_gomemlimit_bytes"); got < 0.9*limit || got > 0.97*limit {
		t.Errorf("GOMEMLIMIT is %.0f of %.0f bytes", got, limit)
	}

	// The kubelet writes a changed ConfigMap, and adbuffer reloads it.
	changed := strings.Replace(o.configMap("adbuffer").Data["adbuffer.yaml"], "max_conns: 64", "max_conns: 65", 1)
	r.pod.swap(t, "/etc/adbuffer", map[string]string{"adbuffer.yaml": changed}, 0o644)
	testsupport.Eventually(t, "the change is in force", func() bool {
		return strings.Contains(get(t, "", r.admin+"/config", "Authorization", "Bearer "+adminToken).body, "max_conns: 65")
	})
	if got := gauge(t, get(t, "", r.admin+"/metrics").body, "adbuffer_config_last_reload_successful"); got != 1 {
		t.Errorf("adbuffer_config_last_reload_successful is %v", got)
	}

	// After SIGTERM, as after preStop, adbuffer is not ready. It serves requests until it ends with exit
	// status 0.
	testsupport.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
	r.await(drains)
	if got := get(t, "", r.admin+"/readyz"); got.status != http.StatusServiceUnavailable {
		t.Errorf("ready while draining: %d", got.status)
	}
	if got := get(t, "", "http://"+r.traffic+"/fillbuffer?pub=1"); !isAd(got) {
		t.Errorf("no ad while draining: %d %v\n%s", got.status, got.header, got.body)
	}
	r.wantExit(0)
	r.await(stopped)
}

// The example's application is a real nginx with the ConfigMap's own configuration. It gets ads over
// the socket that both containers mount. If the test runs as root, each process has its container's
// user.
func TestSidecarServesAdsToTheApplicationBesideIt(t *testing.T) {
	t.Parallel()
	o := mustDecode(t, renderOverlay(t, overlaysDir+"/sidecar"))
	a := the(t, o, "application")
	r := run(t, o, a)
	if info, err := os.Stat(r.traffic); err != nil || info.Mode().Type() != os.ModeSocket || info.Mode().Perm() != 0o660 {
		t.Fatalf("%s: %v, %v", r.traffic, info, err)
	}
	wantAd(t, r.traffic, "http://adbuffer/fillbuffer?pub=1")

	url := runApplication(t, r.pod, a)
	wantAd(t, "", url+"/ad?pub=1&slot=top")

	// adbuffer ends before the application, and has no request to wait for.
	testsupport.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
	r.wantExit(0)
	if got := get(t, "", url+"/ad"); got.status != http.StatusBadGateway {
		t.Errorf("an ad without adbuffer: %d", got.status)
	}
	if got := get(t, "", url+"/alive"); got.status != http.StatusOK {
		t.Errorf("the application is alive without adbuffer: %d", got.status)
	}
}

// runApplication runs the example's application on a free port.
func runApplication(t *testing.T, p *pod, a *adbufferPod) (url string) {
	t.Helper()
	c := &a.spec.Containers[0]
	nginx, err := exec.LookPath(c.Command[0])
	testsupport.NoError(t, err)
	file := p.path("/etc/application/nginx.conf")
	text, err := os.ReadFile(file)
	testsupport.NoError(t, err)
	addr := testsupport.FreeAddr(t)
	listen := fmt.Sprintf("listen %d;", portNamed(c, "http"))
	testsupport.MustTrue(t, strings.Contains(string(text), listen), "nginx.conf has no %q", listen)
	testsupport.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(text), listen, "listen "+addr+";", 1)), 0o644))
	start(t, os.Environ(), as(a.spec, c), nginx, p.args(c)[1:]...)
	url = "http://" + addr
	testsupport.Eventually(t, "the application is alive", func() bool {
		return get(t, "", url+c.ReadinessProbe.HTTPGet.Path).status == http.StatusOK
	})
	return url
}

// A configuration that the chart made of its values works too.
func TestChartsPodsServeAds(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"ads-adbuffer": mustRenderChart(t, values(t, "testdata/values-default.yaml")),
		"ads":          renderApplication(t),
	} {
		o := mustDecode(t, text)
		a := the(t, o, name)
		if a.sidecar {
			r := run(t, o, a)
			wantAd(t, r.traffic, "http://adbuffer/fillbuffer?pub=1")
			continue
		}
		r := run(t, o, a, "ADBUFFER_SERVER_LISTEN=127.0.0.1:0")
		wantAd(t, "", "http://"+r.traffic+"/fillbuffer?pub=1")
		if got := get(t, "", r.admin+"/pools"); got.status != http.StatusForbidden {
			t.Errorf("%s: /pools without a tokenSecret: %d", name, got.status)
		}
	}
}

func gauge(t *testing.T, metrics, name string) float64 {
	t.Helper()
	for line := range strings.Lines(metrics) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			testsupport.NoError(t, err)
			return v
		}
	}
	t.Errorf("no metric %s", name)
	return 0
}
