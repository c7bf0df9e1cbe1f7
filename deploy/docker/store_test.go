package docker

import (
	"adbuffer/internal/test/testsupport"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The tests build the Dockerfile's image with buildah, and run its programs. They use no registry:
// the image for the build consists of this machine's Go and busybox, and the base of the final
// image is empty.

const (
	buildBase = "localhost/adbuffer-build-base"
	image     = "localhost/adbuffer"
	version   = "v1.2.3-test"
	commit    = "0123456789abcdef0123456789abcdef01234567"
)

// store holds images and containers that only these tests use.
var store string

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Geteuid() != 0 && !testing.Short() {
		asRootOfOurOwn()
	}
	var err error
	store, err = os.MkdirTemp("", "adbuffer-image-")
	if err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(store)
	os.Exit(code)
}

// asRootOfOurOwn runs the tests again in a user namespace. There this user is root, and may use
// chroot and the user ids of /etc/subuid.
func asRootOfOurOwn() {
	path, err := exec.LookPath("buildah")
	if err == nil {
		err = syscall.Exec(path, append([]string{"buildah", "unshare"}, os.Args...), os.Environ())
	}
	fmt.Fprintln(os.Stderr, "buildah unshare:", err)
	os.Exit(1)
}

// buildah runs the program and returns its standard output. The storage driver vfs also works if
// the machine itself is a container.
func buildah(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("buildah", append([]string{"--root", store + "/root", "--runroot", store + "/run", "--storage-driver", "vfs"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+store) // for the Dockerfile's cache mounts
	return strings.TrimSpace(testsupport.Output(t, cmd))
}

// rootFileSystem returns the folder with the root file system of a new container of an image.
func rootFileSystem(t *testing.T, image string) string {
	t.Helper()
	return buildah(t, "mount", buildah(t, "from", "--pull-never", image))
}

// makeBuildBase makes the image for BUILD_IMAGE with what the Dockerfile needs: a shell, mkdir, cp,
// the authorities and Go. The build mounts this machine's Go and its caches, since a copy would take
// longer than to compile.
func makeBuildBase(t *testing.T) (mounts []string) {
	t.Helper()
	container := buildah(t, "from", "scratch")
	root := buildah(t, "mount", container)
	const authorities = "/etc/ssl/certs/ca-certificates.crt"
	for _, dir := range []string{"/bin", "/tmp", filepath.Dir(authorities)} {
		testsupport.NoError(t, os.MkdirAll(root+dir, 0o755))
	}
	for from, to := range map[string]string{"/bin/busybox": "/bin/sh", authorities: authorities} {
		content, err := os.ReadFile(from)
		testsupport.NoError(t, err)
		testsupport.NoError(t, os.WriteFile(root+to, content, 0o755))
	}
	for _, tool := range []string{"mkdir", "cp"} {
		testsupport.NoError(t, os.Symlink("sh", root+"/bin/"+tool))
	}
	var dirs map[string]string
	testsupport.NoError(t, json.Unmarshal([]byte(testsupport.Output(t, exec.Command("go", "env", "-json", "GOROOT", "GOMODCACHE", "GOCACHE"))), &dirs))
	for name, dir := range dirs {
		mode := "ro"
		if name == "GOCACHE" {
			mode = "rw"
		}
		mounts = append(mounts, "--volume", dir+":/"+strings.ToLower(name)+":"+mode)
	}
	buildah(t, "config", "--env", "PATH=/goroot/bin:/bin", "--env", "GOROOT=/goroot", "--env", "GOMODCACHE=/gomodcache", "--env", "GOCACHE=/gocache",
		"--env", "GOPROXY=off", "--env", "GOTOOLCHAIN=local", "--env", "GOFLAGS="+os.Getenv("GOFLAGS"), container)
	buildah(t, "umount", container)
	buildah(t, "commit", "--quiet", "--format", "docker", container, buildBase)
	return mounts
}
