package manifesttest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"adbuffer/internal/test/testsupport"
)

// adminToken is the token in the test's Secrets.
const adminToken = "0123456789abcdef0123456789abcdef"

// fsGroup is the group of the pods' volumes.
const fsGroup = 65532

// pod is a pod on a machine without Kubernetes. Its volumes are directories below root, at the paths
// at which the containers mount them.
type pod struct {
	root string
	dirs []string // mount paths
}

// layOut makes the directories of the volumes that the containers mount, as the kubelet does. The
// files of a ConfigMap or Secret are behind a symlink, and its swap changes all of them at once. An
// emptyDir is writable for the pod's group.
func layOut(t *testing.T, o objects, spec *corev1.PodSpec) *pod {
	t.Helper()
	root, err := os.MkdirTemp("", "pod") // short: a unix socket's path has 107 bytes
	testsupport.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(root) })
	testsupport.NoError(t, os.Chmod(root, 0o755))
	p := &pod{root: root}
	cert, key := testsupport.PEM(t, testsupport.Certificate("localhost")) // each Secret fits each place that mounts one
	for _, c := range append(slices.Clone(spec.InitContainers), spec.Containers...) {
		for _, m := range c.VolumeMounts {
			p.dirs = append(p.dirs, m.MountPath)
		}
	}
	for _, c := range append(slices.Clone(spec.InitContainers), spec.Containers...) {
		for _, m := range c.VolumeMounts {
			i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
			switch v := spec.Volumes[i]; {
			case v.ConfigMap != nil:
				p.project(t, m.MountPath, o.configMap(v.ConfigMap.Name).Data, 0o644)
			case v.Secret != nil:
				p.project(t, m.MountPath, map[string]string{"token": adminToken + "\n", "tls.crt": cert, "tls.key": key}, 0o440)
			case v.EmptyDir != nil:
				testsupport.NoError(t, os.MkdirAll(p.path(m.MountPath), 0o755))
				p.own(t, p.path(m.MountPath), 0o2770)
			default:
				t.Fatalf("volume %s is of a kind that is not known here", v.Name)
			}
		}
	}
	return p
}

func (p *pod) path(mounted string) string { return p.root + mounted }

// project writes the files of a volume.
func (p *pod) project(t *testing.T, dir string, files map[string]string, mode os.FileMode) {
	t.Helper()
	if _, err := os.Lstat(p.path(dir)); err == nil {
		return // another container mounts it too
	}
	testsupport.NoError(t, os.MkdirAll(p.path(dir), 0o755))
	p.swap(t, dir, files, mode)
	for name := range files {
		testsupport.NoError(t, os.Symlink(filepath.Join("..data", name), filepath.Join(p.path(dir), name)))
	}
}

// swap changes all files of a volume at once. It makes a new directory, and renames a symlink over
// the old one.
func (p *pod) swap(t *testing.T, dir string, files map[string]string, mode os.FileMode) {
	t.Helper()
	data, err := os.MkdirTemp(p.path(dir), "..")
	testsupport.NoError(t, err)
	testsupport.NoError(t, os.Chmod(data, 0o755))
	for name, text := range files {
		testsupport.NoError(t, os.WriteFile(filepath.Join(data, name), []byte(p.remap(text)), 0o600))
		p.own(t, filepath.Join(data, name), mode)
	}
	testsupport.NoError(t, os.Symlink(filepath.Base(data), filepath.Join(p.path(dir), "..data_tmp")))
	testsupport.NoError(t, os.Rename(filepath.Join(p.path(dir), "..data_tmp"), filepath.Join(p.path(dir), "..data")))
}

// own sets a path's mode. It gives the path to the pod's group if the test runs as root.
func (p *pod) own(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if os.Geteuid() == 0 {
		testsupport.NoError(t, os.Chown(path, 0, fsGroup))
	}
	special := os.FileMode(0)
	if mode&0o2000 != 0 {
		special = os.ModeSetgid
	}
	testsupport.NoError(t, os.Chmod(path, mode.Perm()|special))
}

// remap replaces the paths of the volumes by their directories on this machine. It does so in one
// pass, since a replaced path may begin with the path of another volume.
func (p *pod) remap(text string) string {
	var pairs []string
	for _, dir := range p.dirs {
		pairs = append(pairs, dir+"/", p.path(dir)+"/")
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// env resolves a container's variables as the kubelet does.
func (p *pod) env(t *testing.T, c *corev1.Container) []string {
	t.Helper()
	known := map[string]string{}
	var all []string
	for _, e := range c.Env {
		value := e.Value
		switch from := e.ValueFrom; {
		case from == nil:
		case from.ResourceFieldRef != nil && from.ResourceFieldRef.Resource == "limits.memory":
			limit := c.Resources.Limits[corev1.ResourceMemory]
			value = fmt.Sprint(ceilDiv(limit, from.ResourceFieldRef.Divisor))
		default:
			t.Fatalf("variable %s comes from where nothing here looks", e.Name)
		}
		value = reference.ReplaceAllStringFunc(value, func(r string) string {
			v, ok := known[r[2:len(r)-1]]
			testsupport.True(t, ok, "variable %s refers to %s, which is not set before it", e.Name, r)
			return v
		})
		known[e.Name] = value
		all = append(all, e.Name+"="+p.remap(value))
	}
	return all
}

var reference = regexp.MustCompile(`\$\([A-Za-z_][A-Za-z0-9_]*\)`)

func ceilDiv(q, divisor resource.Quantity) int64 {
	return (q.Value() + divisor.Value() - 1) / divisor.Value()
}

func (p *pod) args(c *corev1.Container) []string {
	var all []string
	for _, a := range append(slices.Clone(c.Command), c.Args...) {
		all = append(all, p.remap(a))
	}
	return all
}

// as returns the identity that the pod gives the container. Only root can take it on; any other
// user runs the container as itself.
func as(spec *corev1.PodSpec, c *corev1.Container) *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	id := &syscall.Credential{Groups: []uint32{uint32(*spec.SecurityContext.FSGroup)}}
	for _, s := range []*int64{spec.SecurityContext.RunAsUser, c.SecurityContext.RunAsUser} {
		if s != nil {
			id.Uid = uint32(*s)
		}
	}
	for _, s := range []*int64{spec.SecurityContext.RunAsGroup, c.SecurityContext.RunAsGroup} {
		if s != nil {
			id.Gid = uint32(*s)
		}
	}
	return id
}

// adbuffers returns adbuffer's container of each pod, by the pod's name.
func (o objects) adbuffers() map[string]*adbufferPod {
	all := map[string]*adbufferPod{}
	for _, d := range of[*appsv1.Deployment](o) {
		spec := &d.Spec.Template.Spec
		for i := range spec.Containers {
			if spec.Containers[i].Name == "adbuffer" {
				all[d.Name] = &adbufferPod{spec: spec, container: &spec.Containers[i]}
			}
		}
		for i := range spec.InitContainers {
			if spec.InitContainers[i].Name == "adbuffer" {
				all[d.Name] = &adbufferPod{spec: spec, container: &spec.InitContainers[i], sidecar: true}
			}
		}
	}
	return all
}

type adbufferPod struct {
	spec      *corev1.PodSpec
	container *corev1.Container
	sidecar   bool
}

func (o objects) configMap(name string) *corev1.ConfigMap {
	for _, c := range of[*corev1.ConfigMap](o) {
		if c.Name == name {
			return c
		}
	}
	return nil
}
