package manifesttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"adbuffer/internal/test/testsupport"
)

// kubeScore needs older types of Kubernetes than this module has.
const kubeScore = "github.com/zegl/kube-score/cmd/kube-score@v1.20.0"

// notAsked are the rules of kube-score that do not hold for these manifests, each with its reason.
var notAsked = map[string]string{
	"container-ephemeral-storage-request-and-limit": "the root file system is read-only",
	"container-image-tag":                           "the user sets the tag",
	"container-image-pull-policy":                   "the user's registry decides",
	"deployment-has-host-podantiaffinity":           "topologySpreadConstraints spread the pods",
	"pod-networkpolicy":                             "not for the check hook, nor where the user switches it off",
	"container-resources":                           "the check hook may use more CPU",
}

// kube-score finds services, budgets, autoscalers and policies that select no pod, probes that are
// wrong, and containers that may do more than they need.
func TestKubeScoreFindsNothing(t *testing.T) {
	sets := everySet(t)
	for _, name := range []string{"edge.yaml", "values-full.yaml"} { // all kinds of objects
		file := filepath.Join(t.TempDir(), "all.yaml")
		testsupport.NoError(t, os.WriteFile(file, []byte(sets[name]), 0o600))
		args := []string{"run", kubeScore, "score", file, "-o", "ci", "--exit-one-on-warning"}
		for rule := range notAsked {
			args = append(args, "--ignore-test", rule)
		}
		out, err := exec.Command("go", args...).CombinedOutput()
		testsupport.True(t, err == nil, "%s: %v\n%s", name, err, out)
		testsupport.True(t, strings.Contains(string(out), "apps/v1/Deployment"), "%s: no Deployment was looked at:\n%s", name, out)
	}
}

// These are rules of adbuffer itself, which no linter knows.
func TestManifestsFitAdbuffersOwnRules(t *testing.T) {
	for name, text := range everySet(t) {
		o := mustDecode(t, text)
		for _, a := range o.adbuffers() {
			for _, c := range containers(a.spec) {
				if host, _, ok := strings.Cut(c.Image, "/"); ok && strings.ContainsAny(host, ".:") {
					t.Errorf("%s: image %s names a registry", name, c.Image)
				}
				for _, m := range c.VolumeMounts {
					testsupport.True(t, m.SubPath == "" && m.SubPathExpr == "", "%s: container %s mounts a subPath, which no reload sees change", name, c.Name)
				}
			}
			if s := a.container.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
				t.Errorf("%s: adbuffer may write to its root file system", name)
			}
		}
		for _, h := range of[*autoscalingv2.HorizontalPodAutoscaler](o) {
			for _, m := range h.Spec.Metrics {
				if m.Pods != nil && m.Pods.Metric.Name != adapterMetric {
					t.Errorf("%s: the adapter's rules give no metric %s", name, m.Pods.Metric.Name)
				}
			}
		}
		for _, m := range of[*monitoringv1.PodMonitor](o) {
			for _, e := range m.Spec.PodMetricsEndpoints {
				job := ""
				for _, l := range e.RelabelConfigs {
					if l.TargetLabel == "job" {
						job = *l.Replacement
					}
				}
				testsupport.True(t, e.Path == "/metrics" && job == "adbuffer", "%s: path %s, job %q, where the alerts expect adbuffer", name, e.Path, job)
			}
			for _, d := range of[*appsv1.Deployment](o) { // otherwise the pods belong to another release
				testsupport.True(t, selects(&m.Spec.Selector, d.Spec.Template.Labels), "%s: PodMonitor %s does not select the pods of %s", name, m.Name, d.Name)
			}
		}
		for _, j := range of[*batchv1.Job](o) {
			for _, s := range of[*corev1.Service](o) {
				if selects(&metav1.LabelSelector{MatchLabels: s.Spec.Selector}, j.Spec.Template.Labels) {
					t.Errorf("%s: Service %s selects the pods of Job %s", name, s.Name, j.Name)
				}
			}
		}
	}
}

// selects reports whether a selector, which must not be empty, matches.
func selects(s *metav1.LabelSelector, l map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && !selector.Empty() && selector.Matches(labels.Set(l))
}

// containers returns the containers that run while the pod runs: sidecars too.
func containers(spec *corev1.PodSpec) []corev1.Container {
	all := slices.Clone(spec.Containers)
	for _, c := range spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			all = append(all, c)
		}
	}
	return all
}

func hasPort(port intstr.IntOrString, all []corev1.Container) bool {
	for _, c := range all {
		for _, p := range c.Ports {
			if port.Type == intstr.String && p.Name == port.StrVal || port.Type == intstr.Int && p.ContainerPort == port.IntVal {
				return true
			}
		}
	}
	return false
}
