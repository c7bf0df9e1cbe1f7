package docker

import (
	"crypto/x509"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// maxImageBytes bounds the uncompressed image, which each node stores. Registries send it
// compressed, at about a third of the size.
const maxImageBytes = 28_000_000

// imageConfig holds the settings of the Dockerfile for running the image.
type imageConfig struct {
	User                 string
	Env, Entrypoint, Cmd []string
	ExposedPorts         map[string]any
	Volumes              map[string]any
	Labels               map[string]string
	StopSignal           string
	WorkingDir           string
	Healthcheck          struct {
		Test                           []string
		Interval, Timeout, StartPeriod time.Duration
		Retries                        int
	}
}

// builtImage is the image of the Dockerfile.
type builtImage struct {
	config imageConfig
	layers []struct{ Size int64 } // not compressed
}

var (
	building sync.Once
	finished *builtImage // once it is built
)

// built returns the image, which the first call builds.
func built(t *testing.T) *builtImage {
	t.Helper()
	building.Do(func() { finished = build(t) })
	testsupport.MustTrue(t, finished != nil, "the image was not built")
	return finished
}

// build runs the Dockerfile.
func build(t *testing.T) *builtImage {
	t.Helper()
	args := append([]string{"build", "--isolation", "chroot", "--pull-never", "--format", "docker", "--tag", image,
		"--build-arg", "BUILD_IMAGE=" + buildBase, "--build-arg", "VERSION=" + version, "--build-arg", "COMMIT=" + commit}, makeBuildBase(t)...)
	buildah(t, append(args, "../..")...)
	var about struct {
		Manifest string
		Docker   struct {
			Config imageConfig `json:"config"`
		}
	}
	testsupport.NoError(t, json.Unmarshal([]byte(buildah(t, "inspect", "--type", "image", image)), &about))
	var manifest struct{ Layers []struct{ Size int64 } }
	testsupport.NoError(t, json.Unmarshal([]byte(about.Manifest), &manifest))
	return &builtImage{about.Docker.Config, manifest.Layers}
}

// files returns the content of a folder by path, without folders that are not empty.
func files(t *testing.T, root string) map[string]fs.FileInfo {
	t.Helper()
	found := map[string]fs.FileInfo{}
	testsupport.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if inside, err := os.ReadDir(path); err != nil || len(inside) > 0 {
				return err
			}
		}
		info, err := entry.Info()
		found[strings.TrimPrefix(path, root)] = info
		return err
	}))
	return found
}

func TestTheImageHoldsTheBinaryTheAuthoritiesAndNothingElse(t *testing.T) {
	testsupport.Needs(t, "buildah", "buildah")
	b := built(t)
	root := rootFileSystem(t, image)
	found := files(t, root)
	if got, want := slices.Sorted(maps.Keys(found)), []string{"/adbuffer", "/etc/ssl/certs/ca-certificates.crt", "/tmp"}; !slices.Equal(got, want) {
		t.Fatalf("the image holds %v, want %v: no shell, no sources, no secrets", got, want)
	}
	testsupport.Equal(t, found["/adbuffer"].Mode(), 0o755, "/adbuffer has mode %v")
	testsupport.Equal(t, found["/tmp"].Mode(), fs.ModeDir|fs.ModeSticky|0o777, "/tmp has mode %v")
	authorities, err := os.ReadFile(root + "/etc/ssl/certs/ca-certificates.crt")
	testsupport.True(t, err == nil && x509.NewCertPool().AppendCertsFromPEM(authorities), "no authorities to verify SSPs with (%v)", err)
	size := int64(0)
	for _, l := range b.layers {
		size += l.Size
	}
	t.Logf("%d layers, %d bytes, not compressed", len(b.layers), size)
	testsupport.True(t, size <= maxImageBytes, "the image has %d bytes, want at most %d", size, maxImageBytes)
}

func TestTheImageSaysHowToRunIt(t *testing.T) {
	testsupport.Needs(t, "buildah", "buildah")
	c := built(t).config
	testsupport.True(t, c.User == "65532:65532", "runs as %q, want a number that is not root's", c.User)
	for what, row := range map[string]struct{ got, want []string }{
		"entrypoint":    {c.Entrypoint, []string{"/adbuffer"}},
		"command":       {c.Cmd, []string{"serve"}},
		"health check":  {c.Healthcheck.Test, []string{"CMD", "/adbuffer", "health"}},
		"exposed ports": {slices.Sorted(maps.Keys(c.ExposedPorts)), []string{"8080/tcp", "9090/tcp"}},
		"variables":     {slices.DeleteFunc(slices.Clone(c.Env), func(v string) bool { return strings.HasPrefix(v, "PATH=") }), []string{"ADBUFFER_CONFIG=/etc/adbuffer/adbuffer.yaml"}},
		"volumes":       {slices.Sorted(maps.Keys(c.Volumes)), nil},
	} {
		testsupport.True(t, slices.Equal(row.got, row.want), "%s: %q, want %q", what, row.got, row.want)
	}
	testsupport.True(t, c.StopSignal == "SIGTERM", "stop signal %q, want the one that drains", c.StopSignal)
	if h := c.Healthcheck; h.Timeout <= 2*time.Second || h.Interval < h.Timeout || h.StartPeriod <= 10*time.Second || h.Retries < 2 {
		t.Errorf("%+v: the command's own timeout is 2 s, admin.warmup_timeout 10 s", h)
	}
	for name, want := range map[string]string{"title": "adbuffer", "version": version, "revision": commit} {
		testsupport.Equal(t, c.Labels["org.opencontainers.image."+name], want, "label %[2]s: %[1]q", name)
	}
}

// The context is what docker sends to the builder before it does anything.
func TestTheBuildContextIsSmallAndHasNoTests(t *testing.T) {
	testsupport.Needs(t, "buildah", "buildah")
	file := filepath.Join(t.TempDir(), "Dockerfile")
	testsupport.NoError(t, os.WriteFile(file, []byte("FROM scratch\nCOPY . .\n"), 0o600))
	buildah(t, "build", "--tag", image+"-context", "--file", file, "../..")
	root := rootFileSystem(t, image+"-context")
	size := int64(0)
	for path, info := range files(t, root) {
		top, _, _ := strings.Cut(path[1:], "/")
		if !slices.Contains([]string{"cmd", "internal", "config", "go.mod", "go.sum"}, top) || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/testdata") {
			t.Errorf("%s is of no use in the build", path)
		}
		size += info.Size()
	}
	testsupport.True(t, size != 0 && size <= 4<<20, "the context has %d bytes, want at most 4 MiB", size)
}
