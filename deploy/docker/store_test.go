package docker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		asRootOfOurOwn()
	}
	code := m.Run()
	if dir, err := storeDir(); err == nil {
		os.RemoveAll(dir)
	}
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

// storeDir holds images and containers that only these tests use.
var storeDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "adbuffer-image-") })

// buildah runs the program and returns its standard output. The storage driver vfs also works if
// the machine itself is a container.
func buildah(args ...string) (string, error) {
	dir, err := storeDir()
	if err != nil {
		return "", err
	}
	cmd := exec.Command("buildah", append([]string{"--root", dir + "/root", "--runroot", dir + "/run", "--storage-driver", "vfs"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir) // for the Dockerfile's cache mounts
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("buildah %s: %w; scripts/install buildah\n%s%s", strings.Join(args, " "), err, &out, &log)
	}
	return strings.TrimSpace(out.String()), nil
}

// rootFileSystem returns the folder with the root file system of a new container of an image.
func rootFileSystem(image string) (string, error) {
	container, err := buildah("from", "--pull-never", image)
	if err != nil {
		return "", err
	}
	return buildah("mount", container)
}

// makeBuildBase makes the image for BUILD_IMAGE with what the Dockerfile needs: a shell, mkdir, cp,
// the authorities and Go. The build mounts this machine's Go and its caches, since a copy would take
// longer than to compile.
func makeBuildBase() (mounts []string, err error) {
	container, err := buildah("from", "scratch")
	if err != nil {
		return nil, err
	}
	root, err := buildah("mount", container)
	if err != nil {
		return nil, err
	}
	const authorities = "/etc/ssl/certs/ca-certificates.crt"
	for _, dir := range []string{"/bin", "/tmp", filepath.Dir(authorities)} {
		if err := os.MkdirAll(root+dir, 0o755); err != nil {
			return nil, err
		}
	}
	for from, to := range map[string]string{"/bin/busybox": "/bin/sh", authorities: authorities} {
		if err := copyFile(from, root+to); err != nil {
			return nil, err
		}
	}
	for _, tool := range []string{"mkdir", "cp"} {
		if err := os.Symlink("sh", root+"/bin/"+tool); err != nil {
			return nil, err
		}
	}
	text, err := exec.Command("go", "env", "-json", "GOROOT", "GOMODCACHE", "GOCACHE").Output()
	if err != nil {
		return nil, err
	}
	var dirs map[string]string
	if err := json.Unmarshal(text, &dirs); err != nil {
		return nil, err
	}
	for name, dir := range dirs {
		mode := "ro"
		if name == "GOCACHE" {
			mode = "rw"
		}
		mounts = append(mounts, "--volume", dir+":/"+strings.ToLower(name)+":"+mode)
	}
	for _, args := range [][]string{
		{"config", "--env", "PATH=/goroot/bin:/bin", "--env", "GOROOT=/goroot", "--env", "GOMODCACHE=/gomodcache", "--env", "GOCACHE=/gocache",
			"--env", "GOPROXY=off", "--env", "GOTOOLCHAIN=local", container},
		{"umount", container},
		{"commit", "--quiet", "--format", "docker", container, buildBase},
	} {
		if _, err := buildah(args...); err != nil {
			return nil, err
		}
	}
	return mounts, nil
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}
