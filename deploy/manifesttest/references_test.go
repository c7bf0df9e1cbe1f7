package manifesttest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// brokenReferences returns a line for each object that names a missing object or port. An API server
// accepts such objects, and they fail in operation.
func (o *objects) brokenReferences() []string {
	r := &references{objects: o}
	r.names()
	for _, d := range o.deployments {
		r.deployment(d.Name, d.Spec.Selector, d.Spec.Template, d.Spec.Replicas != nil)
	}
	for _, j := range o.jobs {
		r.pod("Job "+j.Name, &j.Spec.Template.Spec)
	}
	for _, s := range o.services {
		r.service(s)
	}
	r.autoscaling()
	for _, b := range o.budgets {
		r.selected("PodDisruptionBudget "+b.Name, b.Spec.Selector)
	}
	for _, p := range o.networkPolicies {
		r.networkPolicy(p)
	}
	r.monitoring()
	return r.faults
}

type references struct {
	*objects
	faults []string
}

func (r *references) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

func (r *references) names() {
	for _, o := range r.all {
		for _, e := range validation.IsDNS1123Subdomain(o.GetName()) {
			r.fault("%T: name %q %s", o, o.GetName(), e)
		}
		if o.GetNamespace() != "" {
			r.fault("%T %s names a namespace, which is the user's to choose", o, o.GetName())
		}
		for k, v := range o.GetLabels() {
			for _, e := range append(validation.IsQualifiedName(k), validation.IsValidLabelValue(v)...) {
				r.fault("%T %s: label %s=%s: %s", o, o.GetName(), k, v, e)
			}
		}
	}
}

func (r *references) deployment(name string, selector *metav1.LabelSelector, template corev1.PodTemplateSpec, fixed bool) {
	who := "Deployment " + name
	if !selects(selector, template.Labels) {
		r.fault("%s: its selector does not select its own pods", who)
	}
	scaled := false
	for _, a := range r.autoscalers {
		scaled = scaled || a.Spec.ScaleTargetRef.Name == name
	}
	if scaled == fixed {
		r.fault("%s: replicas set %v, autoscaler there %v: exactly one must say how many", who, fixed, scaled)
	}
	for _, c := range template.Spec.TopologySpreadConstraints {
		if !selects(c.LabelSelector, template.Labels) {
			r.fault("%s: topologySpreadConstraints count other pods", who)
		}
	}
	r.pod(who, &template.Spec)
}

// pod checks the references within a pod: volumes, ports, the account.
func (r *references) pod(who string, spec *corev1.PodSpec) {
	if a := spec.ServiceAccountName; a != "" && a != "default" && !has(r.serviceAccounts, a) {
		r.fault("%s: no ServiceAccount %s", who, a)
	}
	volumes := map[string]bool{}
	for _, v := range spec.Volumes {
		volumes[v.Name] = false
		if v.ConfigMap != nil && !has(r.configMaps, v.ConfigMap.Name) {
			r.fault("%s: no ConfigMap %s", who, v.ConfigMap.Name)
		}
	}
	for _, c := range containers(spec) {
		if c.Image == "" {
			r.fault("%s: container %s has no image", who, c.Name)
		}
		if host, _, ok := strings.Cut(c.Image, "/"); ok && strings.ContainsAny(host, ".:") {
			r.fault("%s: image %s names a registry", who, c.Image)
		}
		for _, m := range c.VolumeMounts {
			if _, ok := volumes[m.Name]; !ok {
				r.fault("%s: container %s mounts %s, which is no volume", who, c.Name, m.Name)
			}
			volumes[m.Name] = true
			if m.SubPath != "" || m.SubPathExpr != "" {
				r.fault("%s: container %s mounts a subPath, which never changes", who, c.Name)
			}
		}
		for name, p := range map[string]*corev1.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
			if p != nil && p.HTTPGet != nil && !hasPort(p.HTTPGet.Port, []corev1.Container{c}) {
				r.fault("%s: %s probe of %s asks port %s, which the container does not have", who, name, c.Name, p.HTTPGet.Port.String())
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(volumes)) {
		if !volumes[name] {
			r.fault("%s: no container mounts volume %s", who, name)
		}
	}
}

func (r *references) service(s *corev1.Service) {
	pods := r.selected("Service "+s.Name, &metav1.LabelSelector{MatchLabels: s.Spec.Selector})
	for _, pod := range pods {
		for _, p := range s.Spec.Ports {
			if p.TargetPort.Type != intstr.String {
				r.fault("Service %s: targetPort %s is no name", s.Name, p.TargetPort.String())
			}
			if !hasPort(p.TargetPort, containers(pod)) {
				r.fault("Service %s: no container has port %s", s.Name, p.TargetPort.String())
			}
		}
	}
}

func (r *references) autoscaling() {
	for _, a := range r.autoscalers {
		who, ref := "HorizontalPodAutoscaler "+a.Name, a.Spec.ScaleTargetRef
		if ref.APIVersion != "apps/v1" || ref.Kind != "Deployment" || !has(r.deployments, ref.Name) {
			r.fault("%s: no %s %s %s to scale", who, ref.APIVersion, ref.Kind, ref.Name)
			continue
		}
		if *a.Spec.MinReplicas > a.Spec.MaxReplicas || len(a.Spec.Metrics) == 0 {
			r.fault("%s: min %d, max %d, %d metrics", who, *a.Spec.MinReplicas, a.Spec.MaxReplicas, len(a.Spec.Metrics))
		}
		for _, m := range a.Spec.Metrics {
			switch {
			case m.Resource != nil:
				for _, d := range r.deployments {
					for _, c := range containers(&d.Spec.Template.Spec) {
						if d.Name == ref.Name && c.Resources.Requests.Name(m.Resource.Name, "").IsZero() {
							r.fault("%s: by %s, which container %s does not request", who, m.Resource.Name, c.Name)
						}
					}
				}
			case m.Pods == nil:
				r.fault("%s: metric of type %s, which nothing here checks", who, m.Type)
			case m.Pods.Metric.Name != adapterMetric:
				r.fault("%s: the adapter's rules give no metric %s", who, m.Pods.Metric.Name)
			}
		}
	}
}

func (r *references) networkPolicy(p *networkingv1.NetworkPolicy) {
	who := "NetworkPolicy " + p.Name
	for _, pod := range r.selected(who, &p.Spec.PodSelector) {
		for _, in := range p.Spec.Ingress {
			if len(in.From) == 0 || len(in.Ports) == 0 {
				r.fault("%s: an ingress rule for every peer, or every port", who)
			}
			for _, port := range in.Ports {
				if !hasPort(*port.Port, containers(pod)) {
					r.fault("%s: no container has port %s", who, port.Port.String())
				}
			}
		}
	}
	open := map[string]bool{}
	for _, e := range p.Spec.Egress {
		for _, port := range e.Ports {
			open[fmt.Sprintf("%s/%s", *port.Protocol, port.Port.String())] = true
		}
	}
	for _, needed := range []string{"UDP/53", "TCP/53", "TCP/443", "TCP/80"} {
		if !open[needed] {
			r.fault("%s: %s is closed", who, needed)
		}
	}
	if len(p.Spec.PolicyTypes) != 2 {
		r.fault("%s: policyTypes %v leave a direction open", who, p.Spec.PolicyTypes)
	}
}

func (r *references) monitoring() {
	for _, m := range r.podMonitors {
		who := "PodMonitor " + m.Name
		pods := []*corev1.PodSpec{}
		if len(r.deployments) > 0 { // otherwise the pods belong to another release
			pods = r.selected(who, &m.Spec.Selector)
		}
		for _, e := range m.Spec.PodMetricsEndpoints {
			if e.Port == nil || e.Path != "/metrics" {
				r.fault("%s: asks port %v for %s", who, e.Port, e.Path)
				continue
			}
			for _, pod := range pods {
				if !hasPort(intstr.FromString(*e.Port), containers(pod)) {
					r.fault("%s: no container has port %s", who, *e.Port)
				}
			}
			job := ""
			for _, l := range e.RelabelConfigs {
				if l.TargetLabel == "job" {
					job = *l.Replacement
				}
			}
			if job != "adbuffer" {
				r.fault("%s: job %q, where the alerts know adbuffer", who, job)
			}
		}
	}
}

// selected returns the pods of the Deployments that selector selects. It is an error if there are
// none.
func (r *references) selected(who string, selector *metav1.LabelSelector) []*corev1.PodSpec {
	var pods []*corev1.PodSpec
	for _, d := range r.deployments {
		if selects(selector, d.Spec.Template.Labels) {
			pods = append(pods, &d.Spec.Template.Spec)
		}
	}
	if len(pods) == 0 {
		r.fault("%s: selects no pods", who)
	}
	for _, j := range r.jobs {
		if selects(selector, j.Spec.Template.Labels) {
			r.fault("%s: selects the pods of Job %s", who, j.Name)
		}
	}
	return pods
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

func has[T metav1.Object](all []T, name string) bool {
	return slices.ContainsFunc(all, func(o T) bool { return o.GetName() == name })
}

func TestEveryReferenceIsToSomethingThere(t *testing.T) {
	for name, text := range everySet(t) {
		for _, f := range mustDecode(t, text).brokenReferences() {
			t.Errorf("%s: %s", name, f)
		}
	}
}

func TestBrokenReferencesAreFound(t *testing.T) {
	edge, sidecar := renderOverlay(t, overlaysDir+"/edge"), renderOverlay(t, overlaysDir+"/sidecar")
	full := mustRenderChart(t, values(t, "testdata/values-full.yaml"))
	for _, c := range []struct{ in, old, new, want string }{
		{edge, "targetPort: http", "targetPort: web", "Service adbuffer: no container has port web"},
		{edge, "kind: Deployment\n    name: adbuffer", "kind: Deployment\n    name: adbufer", "no apps/v1 Deployment adbufer to scale"},
		{edge, "name: adbuffer_pool_saturation_ratio", "name: adbuffer_pool_saturation", "the adapter's rules give no metric adbuffer_pool_saturation"},
		{edge, "serviceAccountName: adbuffer", "serviceAccountName: other", "no ServiceAccount other"},
		{edge, "configMap:\n          name: adbuffer", "configMap:\n          name: adbuffer-7f", "no ConfigMap adbuffer-7f"},
		{edge, "mountPath: /etc/adbuffer\n          name: config", "mountPath: /etc/adbuffer\n          name: configs", "mounts configs, which is no volume"},
		{edge, "mountPath: /etc/adbuffer\n", "mountPath: /etc/adbuffer\n          subPath: x\n", "mounts a subPath"},
		{edge, "path: /readyz\n            port: admin", "path: /readyz\n            port: metrics", "asks port metrics"},
		{edge, "replacement: adbuffer", "replacement: other", `job "other"`},
		{edge, "port: 443", "port: 444", "TCP/443 is closed"},
		{edge, "image: adbuffer:", "image: registry.example/adbuffer:", "names a registry"},
		{edge, "  template:\n    metadata:\n      labels:\n        app.kubernetes.io/component: edge", "  template:\n    metadata:\n      labels:\n        app.kubernetes.io/component: edges", "PodDisruptionBudget adbuffer: selects no pods"},
		{sidecar, "adbuffer: sidecar\n        app", "adbuffer: beside\n        app", "PodMonitor adbuffer-sidecars: selects no pods"},
		{sidecar, "restartPolicy: Always", "", "PodMonitor adbuffer-sidecars: no container has port admin"},
		{full, "app.kubernetes.io/name: ads-proxy-check", "app.kubernetes.io/name: ads-proxy", "selects the pods of Job"},
	} {
		if !strings.Contains(c.in, c.old) {
			t.Errorf("%q is not there to be broken", c.old)
			continue
		}
		found := mustDecode(t, strings.ReplaceAll(c.in, c.old, c.new)).brokenReferences()
		if !strings.Contains(strings.Join(found, "\n"), c.want) {
			t.Errorf("%q: found %q, want %q", c.new, found, c.want)
		}
	}
}
