package manifesttest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// effective is the part of the output of `adbuffer check` that must fit the pod.
type effective struct {
	Server struct {
		Listen           string `json:"listen"`
		MaxConnections   int64  `json:"max_connections"`
		MaxBufferedBytes int64  `json:"max_buffered_bytes"`
		Drain            struct {
			Delay   metav1.Duration `json:"delay"`
			Timeout metav1.Duration `json:"timeout"`
		} `json:"drain"`
	} `json:"server"`
	Admin struct {
		Listen        string          `json:"listen"`
		WarmupTimeout metav1.Duration `json:"warmup_timeout"`
	} `json:"admin"`
}

// check runs `adbuffer check` with a container's files, variables and arguments.
func check(t *testing.T, p *pod, c *corev1.Container) effective {
	t.Helper()
	args := p.args(c)
	if args[0] == "serve" {
		args[0] = "check"
	}
	if !slices.Contains(args, "--quiet") {
		args = append(args, "--effective")
	}
	out, stderr, status := e2e.Run(t, p.env(t, c), args...)
	if status != 0 {
		t.Fatalf("adbuffer %s: exit status %d:\n%s%s", strings.Join(args, " "), status, out, stderr)
	}
	var e effective
	if slices.Contains(args, "--quiet") {
		return e
	}
	testsupport.NoError(t, yaml.Unmarshal([]byte(out), &e))
	testsupport.MustTrue(t, e.Server.Listen != "" && e.Admin.Listen != "", "check printed no configuration:\n%s", out)
	return e
}

// The hook stops an upgrade with an error that the schema of the values cannot find.
func TestCheckHookFailsForAFault(t *testing.T) {
	v := values(t, "testdata/values-default.yaml")
	v["config"] = map[string]any{"ssp_defaults": map[string]any{"pool": map[string]any{"max_con": 7}}}
	o := mustDecode(t, mustRenderChart(t, v))
	spec := &of[*batchv1.Job](o)[0].Spec.Template.Spec
	p := layOut(t, o, spec)
	_, stderr, status := e2e.Run(t, p.env(t, &spec.Containers[0]), p.args(&spec.Containers[0])...)
	testsupport.True(t, status == 1 && strings.Contains(stderr, "ssp_defaults.pool.max_con"), "exit status %d:\n%s", status, stderr)
}

// misfits returns a line for each setting in force that does not fit the pod.
func misfits(a *adbufferPod, e effective, applicationStop time.Duration) []string {
	var all []string
	fault := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	c := a.container

	// Ports.
	for _, p := range []struct{ listen, name string }{{e.Server.Listen, "http"}, {e.Admin.Listen, c.ReadinessProbe.HTTPGet.Port.StrVal}} {
		if dir, ok := strings.CutPrefix(p.listen, "unix:"); ok {
			if !sharesSocket(a, dir) {
				fault("no other container mounts the directory of %s", dir)
			}
			continue
		}
		host, port, _ := strings.Cut(p.listen, ":")
		n, _ := strconv.Atoi(port)
		if host != "" || !hasPort(intstr.FromInt32(int32(n)), []corev1.Container{*c}) || portNamed(c, p.name) != int32(n) {
			fault("adbuffer listens on %s, port %s is %d", p.listen, p.name, portNamed(c, p.name))
		}
	}

	// Probes.
	for _, p := range []struct {
		name, path string
		probe      *corev1.Probe
	}{{"startup", "/readyz", c.StartupProbe}, {"readiness", "/readyz", c.ReadinessProbe}, {"liveness", "/healthz", c.LivenessProbe}} {
		if p.probe.HTTPGet.Path != p.path || p.probe.HTTPGet.Port.StrVal != c.ReadinessProbe.HTTPGet.Port.StrVal {
			fault("%s probe asks %s of port %s", p.name, p.probe.HTTPGet.Path, p.probe.HTTPGet.Port.StrVal)
		}
	}
	if starts := seconds(int64(c.StartupProbe.PeriodSeconds * c.StartupProbe.FailureThreshold)); starts <= e.Admin.WarmupTimeout.Duration {
		fault("startupProbe gives up after %v, warmup_timeout is %v", starts, e.Admin.WarmupTimeout)
	}
	notices := seconds(int64(c.ReadinessProbe.PeriodSeconds * c.ReadinessProbe.FailureThreshold))
	if !a.sidecar && notices > e.Server.Drain.Delay.Duration {
		fault("readinessProbe says no after %v, drain.delay is %v", notices, e.Server.Drain.Delay)
	}

	// Stopping.
	stop := e.Server.Drain.Delay.Duration + e.Server.Drain.Timeout.Duration
	if c.Lifecycle != nil {
		stop += seconds(c.Lifecycle.PreStop.Sleep.Seconds)
	} else if !a.sidecar {
		fault("no preStop: nodes send requests to a pod that has stopped")
	}
	if a.sidecar { // Kubernetes stops it after the application has ended
		stop += seconds(a.spec.Containers[0].Lifecycle.PreStop.Sleep.Seconds) + applicationStop
	}
	if grace := seconds(*a.spec.TerminationGracePeriodSeconds); stop+5*time.Second > grace {
		fault("stopping takes up to %v, and 5s to spare; terminationGracePeriodSeconds is %v", stop, grace)
	}

	// Memory.
	limit := c.Resources.Limits.Memory().Value()
	if bound := e.Server.MaxBufferedBytes + 20<<10*e.Server.MaxConnections; bound > limit*3/4 {
		fault("bodies and connections may take %d MiB of %d MiB", bound>>20, limit>>20)
	}
	return all
}

func sharesSocket(a *adbufferPod, socket string) bool {
	mounts := func(c *corev1.Container) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return strings.HasPrefix(socket, m.MountPath+"/") && !m.ReadOnly &&
				slices.ContainsFunc(a.spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name && v.EmptyDir != nil })
		})
	}
	return mounts(a.container) && mounts(&a.spec.Containers[0])
}

func portNamed(c *corev1.Container, name string) int32 {
	for _, p := range c.Ports {
		if p.Name == name {
			return p.ContainerPort
		}
	}
	return 0
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

var shutdownTimeout = regexp.MustCompile(`worker_shutdown_timeout (\d+)s;`)

// applicationStop is the time that an example's application may take after preStop.
func applicationStop(t *testing.T, o objects, a *adbufferPod) time.Duration {
	t.Helper()
	for _, c := range of[*corev1.ConfigMap](o) {
		if m := shutdownTimeout.FindStringSubmatch(c.Data["nginx.conf"]); m != nil && a.sidecar {
			n, err := strconv.ParseInt(m[1], 10, 64)
			testsupport.NoError(t, err)
			return seconds(n)
		}
	}
	return 0
}

// unmapped returns the configuration in force with the pod's own paths.
func unmapped(p *pod, e effective) effective {
	e.Server.Listen = strings.ReplaceAll(e.Server.Listen, p.root, "")
	return e
}

func TestEveryConfigurationFitsItsPod(t *testing.T) {
	pods := 0
	for name, text := range everySet(t) {
		o := mustDecode(t, text)
		for _, a := range o.adbuffers() {
			p := layOut(t, o, a.spec)
			for _, m := range misfits(a, unmapped(p, check(t, p, a.container)), applicationStop(t, o, a)) {
				t.Errorf("%s: %s", name, m)
			}
			pods++
		}
		for _, j := range of[*batchv1.Job](o) { // a hook that checks
			spec := &j.Spec.Template.Spec
			check(t, layOut(t, o, spec), &spec.Containers[0])
		}
	}
	testsupport.True(t, pods >= 6, "%d pods: not all were looked at", pods)
}
