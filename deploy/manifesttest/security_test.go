package manifesttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// unsafe returns a line for each setting of a container that breaks the Pod Security Standard
// "restricted", or a rule of this project: a read-only root file system, and the image's user for
// adbuffer.
func unsafe(spec *corev1.PodSpec, c *corev1.Container) []string {
	var all []string
	want := func(ok bool, what string) {
		if !ok {
			all = append(all, fmt.Sprintf("container %s: %s", c.Name, what))
		}
	}
	ps, cs := spec.SecurityContext, c.SecurityContext
	if ps == nil || cs == nil {
		want(false, "no securityContext")
		return all
	}
	either := func(container, pod *bool) bool {
		if container != nil {
			return *container
		}
		return pod != nil && *pod
	}
	want(either(cs.RunAsNonRoot, ps.RunAsNonRoot), "runAsNonRoot")
	seccomp := ps.SeccompProfile
	if cs.SeccompProfile != nil {
		seccomp = cs.SeccompProfile
	}
	want(seccomp != nil && seccomp.Type == corev1.SeccompProfileTypeRuntimeDefault, "seccompProfile")
	want(cs.AllowPrivilegeEscalation != nil && !*cs.AllowPrivilegeEscalation, "allowPrivilegeEscalation")
	want(cs.ReadOnlyRootFilesystem != nil && *cs.ReadOnlyRootFilesystem, "readOnlyRootFilesystem")
	want(cs.Capabilities != nil && slices.Equal(cs.Capabilities.Drop, []corev1.Capability{"ALL"}) && len(cs.Capabilities.Add) == 0, "capabilities")
	want(cs.Privileged == nil, "privileged")
	user := ps.RunAsUser
	if cs.RunAsUser != nil {
		user = cs.RunAsUser
	}
	want(user != nil && *user > 0 && (c.Name != "adbuffer" || *user == 65532), "runAsUser")
	want(!c.Resources.Limits.Memory().IsZero(), "limits.memory")
	want(c.ImagePullPolicy != corev1.PullNever, "imagePullPolicy")
	return all
}

// unsafePod is unsafe for the settings of a whole pod.
func unsafePod(spec *corev1.PodSpec) []string {
	var all []string
	if spec.HostNetwork || spec.HostPID || spec.HostIPC {
		all = append(all, "shares a namespace with the node")
	}
	if m := spec.AutomountServiceAccountToken; m == nil || *m {
		all = append(all, "automountServiceAccountToken")
	}
	if l := spec.EnableServiceLinks; l == nil || *l {
		all = append(all, "enableServiceLinks")
	}
	if g := spec.SecurityContext.FSGroup; g == nil || *g != fsGroup {
		all = append(all, "fsGroup")
	}
	for _, v := range spec.Volumes {
		if v.ConfigMap == nil && v.Secret == nil && v.EmptyDir == nil {
			all = append(all, "volume "+v.Name)
		}
	}
	return all
}

func TestEveryPodIsRestricted(t *testing.T) {
	for name, text := range everySet(t) {
		o := mustDecode(t, text)
		for _, a := range o.adbuffers() {
			own := []corev1.Container{*a.container}
			if name != "example-application" { // the user owns its application and its pod
				own = append(own, a.spec.Containers...)
				for _, u := range unsafePod(a.spec) {
					t.Errorf("%s: %s", name, u)
				}
			}
			for _, c := range own {
				for _, u := range unsafe(a.spec, &c) {
					t.Errorf("%s: %s", name, u)
				}
			}
		}
		for _, j := range o.jobs {
			spec := &j.Spec.Template.Spec
			for _, u := range append(unsafe(spec, &spec.Containers[0]), unsafePod(spec)...) {
				t.Errorf("%s: Job: %s", name, u)
			}
		}
		for _, s := range o.serviceAccounts {
			if m := s.AutomountServiceAccountToken; m == nil || *m {
				t.Errorf("%s: ServiceAccount %s hands out tokens", name, s.Name)
			}
		}
	}
}

func TestLooserPodsAreFound(t *testing.T) {
	edge := renderOverlay(t, overlaysDir+"/edge")
	for _, c := range []struct{ old, new, want string }{
		{"runAsNonRoot: true", "runAsNonRoot: false", "runAsNonRoot"},
		{"runAsUser: 65532", "runAsUser: 0", "runAsUser"},
		{"readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "readOnlyRootFilesystem"},
		{"allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true", "allowPrivilegeEscalation"},
		{"- ALL", "- CHOWN", "capabilities"},
		{"type: RuntimeDefault", "type: Unconfined", "seccompProfile"},
		{"automountServiceAccountToken: false", "automountServiceAccountToken: true", "automountServiceAccountToken"},
		{"enableServiceLinks: false", "hostNetwork: true", "shares a namespace"},
	} {
		o := mustDecode(t, strings.ReplaceAll(edge, c.old, c.new))
		a := the(t, o, "adbuffer")
		found := append(unsafe(a.spec, a.container), unsafePod(a.spec)...)
		if !strings.Contains(strings.Join(found, "\n"), c.want) {
			t.Errorf("%q: found %q", c.new, found)
		}
	}
}
