package manifesttest

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

func TestMain(m *testing.M) { e2e.Main(m) }

// running is a pod's adbuffer with the container's own arguments and variables, as the kubelet runs
// it. But it has free ports, and simulated SSPs: one for each region of the first SSP.
type running struct {
	*e2e.Process
	near, far *sspsim.SSP
	pod       *pod
}

func run(t *testing.T, o objects, a *adbufferPod, env ...string) *running {
	t.Helper()
	p := layOut(t, o, a.spec)
	r := &running{near: e2e.Healthy(t), far: e2e.Healthy(t), pod: p}
	cmd := exec.Command(e2e.Binary(t), p.args(a.container)...)
	testsupport.NoError(t, os.Chmod(filepath.Dir(cmd.Path), 0o711)) // the pods' users run it
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: as(a.spec, a.container)}
	cmd.Env = append(p.env(t, a.container), "ADBUFFER_SSPS_OPENX_ENDPOINTS_0_URL="+r.near.URL(), "ADBUFFER_SSPS_OPENX_ENDPOINTS_1_URL="+r.far.URL(), "ADBUFFER_SSPS_BACKUP_ENDPOINTS_0="+r.near.URL(), "ADBUFFER_ADMIN_LISTEN=:0")
	cmd.Env = append(cmd.Env, env...)
	r.Process = e2e.LaunchCommand(t, cmd, (*e2e.Process).FindListeners)
	r.AdminAddr = "127.0.0.1:" + testsupport.Port(t, r.AdminAddr)
	testsupport.Eventually(t, "startupProbe succeeds", func() bool {
		status, _ := r.AskAdmin(a.container.StartupProbe.HTTPGet.Path)
		return status == http.StatusOK
	})
	for _, probe := range []string{a.container.ReadinessProbe.HTTPGet.Path, a.container.LivenessProbe.HTTPGet.Path} {
		if status, body := r.AskAdmin(probe); status != http.StatusOK {
			t.Fatalf("probe of %s: %d %s", probe, status, body)
		}
	}
	return r
}

func the(t *testing.T, o objects, name string) *adbufferPod {
	t.Helper()
	a := o.adbuffers()[name]
	testsupport.MustTrue(t, a != nil, "no adbuffer in Deployment %s", name)
	return a
}

func (r *running) ad() bool {
	res := r.Get("/fillbuffer?pub=1")
	return res.Status == http.StatusOK && res.Header("X-Adbuffer-Source") == "ssp/openx"
}

// wantAd sends requests until an ad of openx comes. On a slow machine the first request may miss the
// manifest's deadline.
func (r *running) wantAd() {
	r.T.Helper()
	testsupport.Eventually(r.T, "an ad of openx", r.ad)
}

func TestEdgePodServesAdsReloadsAndDrains(t *testing.T) {
	t.Parallel()
	o := mustDecode(t, page(t, "../kubernetes/edge.yaml"))
	a := the(t, o, "ads-adbuffer")
	r := run(t, o, a, "ADBUFFER_SERVER_LISTEN=127.0.0.1:0", "ADBUFFER_DEADLINE_DEFAULT=2s", "ADBUFFER_ROUTES_DEFAULT_SSPS_OPENX_TIMEOUT=2s")
	r.wantAd()

	// The token is for the operators' pages. Prometheus and the kubelet need none.
	for _, c := range []struct {
		path, token string
		want        int
	}{{"/pools", "", 403}, {"/pools", "wrong", 403}, {"/pools", adminToken, 200}, {"/metrics", "", 200}} {
		if status, _ := r.SendAdmin("GET", c.path, "", "Authorization", "Bearer "+c.token); status != c.want {
			t.Errorf("%s with token %q: %d, want %d", c.path, c.token, status, c.want)
		}
	}

	// The metrics of the adapter's rule exist.
	r.WantMetric(0, adapterMetric, "ssp=backup")
	r.WantMetric(0, "adbuffer_breaker_shed_ratio", "ssp=openx")

	// The kubelet writes a changed ConfigMap, and adbuffer reloads it.
	changed := strings.Replace(o.configMap("ads-adbuffer").Data["adbuffer.yaml"], "max_conns: 64", "max_conns: 65", 1)
	r.pod.swap(t, "/etc/adbuffer", map[string]string{"adbuffer.yaml": changed}, 0o644)
	r.AwaitMetric(65, "adbuffer_pool_connections_limit", "ssp=openx")
	r.WantMetric(1, "adbuffer_config_last_reload_successful")

	// After SIGTERM, as after preStop, adbuffer is not ready. It serves requests until it ends with exit
	// status 0.
	r.BeginDrain()
	if status, _ := r.AskAdmin("/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("ready while draining: %d", status)
	}
	testsupport.True(t, r.ad(), "no ad while draining")
	r.WantExit(0)
}

// The shipped examples have two regions. The far one gets no request while the near one works, and
// all of them while it does not.
func TestTheFarRegionServesWhileTheNearOneIsDown(t *testing.T) {
	t.Parallel()
	o := mustDecode(t, page(t, "../kubernetes/edge.yaml"))
	r := run(t, o, the(t, o, "ads-adbuffer"), "ADBUFFER_SERVER_LISTEN=127.0.0.1:0", "ADBUFFER_DEADLINE_DEFAULT=2s", "ADBUFFER_ROUTES_DEFAULT_SSPS_OPENX_TIMEOUT=2s")
	filled := func(s *sspsim.SSP) float64 {
		return r.Metric("adbuffer_endpoint_requests_total", "ssp=openx", "endpoint="+s.Addr(), "outcome=fill")
	}
	if first, second := r.ad(), r.ad(); !first || !second || filled(r.near) != 2 || filled(r.far) != 0 {
		t.Fatalf("the near region had %v of 2 requests, the far one %v", filled(r.near), filled(r.far))
	}
	e2e.SetBehaviour(t, r.near, sspsim.Behaviour{Faults: sspsim.Faults{Refuse: true}})
	r.near.CloseConnections()
	testsupport.Eventually(t, "the far region serves", func() bool { return r.ad() && filled(r.far) > 0 })
	e2e.SetBehaviour(t, r.near, sspsim.Behaviour{})
	testsupport.Eventually(t, "the near region serves again", func() bool { return r.ad() && filled(r.near) > 2 })
	if had := filled(r.far); !r.ad() || filled(r.far) != had {
		t.Error("the far region still gets requests")
	}
}

// The example's application is a real nginx with the ConfigMap's own configuration. It gets ads over
// the socket that both containers mount. If the test runs as root, each process has its container's
// user.
func TestSidecarServesAdsToTheApplicationBesideIt(t *testing.T) {
	t.Parallel()
	o := mustDecode(t, page(t, "../kubernetes/sidecar.yaml"))
	a := the(t, o, "ads")
	r := run(t, o, a)
	if info, err := os.Stat(r.TrafficAddr); err != nil || info.Mode().Type() != os.ModeSocket || info.Mode().Perm() != 0o660 {
		t.Fatalf("%s: %v, %v", r.TrafficAddr, info, err)
	}
	r.wantAd()
	url := runApplication(t, r.pod, a)
	testsupport.Eventually(t, "the application is alive and has an ad", func() bool {
		return status(t, url+a.spec.Containers[0].ReadinessProbe.HTTPGet.Path) == http.StatusOK && status(t, url+"/ad?pub=1&slot=top") == http.StatusOK
	})

	// adbuffer ends before the application, and has no request to wait for.
	r.Signal(syscall.SIGTERM)
	r.WantExit(0)
	testsupport.Equal(t, status(t, url+"/ad"), http.StatusBadGateway, "an ad without adbuffer: %d")
	testsupport.Equal(t, status(t, url+"/alive"), http.StatusOK, "the application is alive without adbuffer: %d")
}

// runApplication runs the example's application on a free port.
func runApplication(t *testing.T, p *pod, a *adbufferPod) (url string) {
	t.Helper()
	c := &a.spec.Containers[0]
	file := p.path("/etc/application/nginx.conf")
	text, err := os.ReadFile(file)
	testsupport.NoError(t, err)
	addr := testsupport.FreeAddr(t)
	listen := fmt.Sprintf("listen %d;", portNamed(c, "http"))
	testsupport.MustTrue(t, strings.Contains(string(text), listen), "nginx.conf has no %q", listen)
	testsupport.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(text), listen, "listen "+addr+";", 1)), 0o644))
	cmd := exec.Command(c.Command[0], p.args(c)[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as(a.spec, c), Setpgid: true}
	testsupport.StartDaemon(t, "tcp", addr, cmd)
	t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // its children too, which hold its output open
	return "http://" + addr
}

func status(t *testing.T, url string) int {
	t.Helper()
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testsupport.Patience}).Get(url)
	testsupport.NoError(t, err)
	res.Body.Close()
	return res.StatusCode
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
		var env []string
		if !a.sidecar {
			env = []string{"ADBUFFER_SERVER_LISTEN=127.0.0.1:0"}
		}
		r := run(t, o, a, env...)
		r.wantAd()
		if status, _ := r.AskAdmin("/pools"); !a.sidecar && status != http.StatusForbidden {
			t.Errorf("%s: /pools without a tokenSecret: %d", name, status)
		}
	}
}
