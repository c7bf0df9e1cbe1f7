package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	containers "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"adbuffer/internal/test/testsupport"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// small is a release of a small Go program, with three pages in place of man pages and completions.
// So packing takes no minute. The test of a booted system has the real program.
func small(t *testing.T) (r *release, manual string) {
	t.Helper()
	r = &release{root: "../..", out: t.TempDir(), version: "1.2.3-rc.1", commit: commit, time: time.Unix(1_750_000_000, 0).UTC()}
	testsupport.NoError(t, r.findGo(t.Context()))
	program, err := program()
	testsupport.NoError(t, err)
	manual = t.TempDir()
	pages := map[string]string{"bash": "bash", "zsh": "zsh", "fish": "fish", "man/adbuffer.1.gz": "a page"}
	for _, arch := range architectures {
		pages[r.binary(arch)] = string(program)
	}
	for name, text := range pages {
		if !filepath.IsAbs(name) {
			name = filepath.Join(manual, name)
		}
		testsupport.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)))
	}
	testsupport.NoError(t, r.writeLicenses(architectures...))
	return r, manual
}

// program is a Go program that uses a module.
var program = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "adbuffer-release-test-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	source := "package main\n\nimport \"github.com/Masterminds/semver/v3\"\n\nfunc main() { println(semver.MustParse(\"1.2.3\").String()) }\n"
	if err := os.WriteFile(dir+"/main.go", []byte(source), 0o600); err != nil {
		return nil, err
	}
	if out, err := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", dir+"/program", dir+"/main.go").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.ReadFile(dir + "/program")
})

func run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	testsupport.MustTrue(t, err == nil, "%v: %v\n%s", args, err, out)
	return string(out)
}

// Two releases of a commit are equal: neither the folder, nor the time, nor the modes of files, nor the
// name of the machine is inside.
func TestTwoReleasesOfACommitAreEqual(t *testing.T) {
	sums := func() string {
		r, manual := small(t)
		testsupport.NoError(t, r.pack(t.TempDir(), manual))
		list, err := os.ReadFile(r.file("SHA256SUMS"))
		testsupport.NoError(t, err)
		check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
		check.Dir = r.out
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return string(list)
	}
	t.Setenv("TZ", "Asia/Tokyo")
	first := sums()
	t.Setenv("TZ", "UTC")
	time.Sleep(1100 * time.Millisecond) // file systems and archives know seconds
	if second := sums(); first != second {
		t.Errorf("first:\n%ssecond:\n%s", first, second)
	}
	var names []string
	for line := range strings.Lines(first) {
		names = append(names, strings.Fields(line)[1])
	}
	want := []string{
		"adbuffer-1.2.3~rc.1-1.aarch64.rpm", "adbuffer-1.2.3~rc.1-1.x86_64.rpm",
		"adbuffer_1.2.3-rc.1_licenses.txt", "adbuffer_1.2.3-rc.1_linux_amd64", "adbuffer_1.2.3-rc.1_linux_amd64.cdx.json", "adbuffer_1.2.3-rc.1_linux_arm64", "adbuffer_1.2.3-rc.1_linux_arm64.cdx.json",
		"adbuffer_1.2.3-rc.1_oci.tar", "adbuffer_1.2.3~rc.1-1_amd64.deb", "adbuffer_1.2.3~rc.1-1_arm64.deb",
	}
	testsupport.True(t, slices.Equal(names, want), "the release has %q, want %q", names, want)
}

// The binary has neither paths of the machine nor git's state, and no module is updated for it.
func TestTheBinaryOfAReleaseDependsOnlyOnItsCommit(t *testing.T) {
	r := &release{version: "1.2.3", commit: "abc"}
	got := strings.Join(r.buildCommand("f"), " ")
	want := "go build -trimpath -buildvcs=false -mod=readonly -ldflags -s -w -X adbuffer/internal/app/app.Version=1.2.3 -X adbuffer/internal/app/app.Commit=abc -o f ./cmd/adbuffer"
	testsupport.Equal(t, got, want, "the command is %q")
}

func TestAVersionIsThreeNumbers(t *testing.T) {
	for _, version := range []string{"", "v1.2.3", "1.2", "latest"} {
		r := release{root: "../..", out: t.TempDir(), version: version, commit: commit, time: time.Unix(1, 0)}
		if err := r.run(t.Context()); err == nil || !strings.Contains(err.Error(), "write for example 0.1.0") {
			t.Errorf("%q: %v", version, err)
		}
	}
}

func TestTheDebianPackageHasItsFiles(t *testing.T) {
	r, manual := small(t)
	testsupport.NoError(t, r.packages(t.TempDir(), "arm64", manual))
	file := r.file("adbuffer_1.2.3~rc.1-1_arm64.deb")
	found := make(map[string]string) // mode and owner by path
	for line := range strings.Lines(run(t, "dpkg-deb", "--contents", file)) {
		if f := strings.Fields(line); f[0][0] != 'd' {
			found[strings.TrimPrefix(f[5], ".")] = f[0] + " " + f[1]
		}
	}
	for path, want := range map[string]string{
		"/usr/bin/adbuffer": "-rwxr-xr-x root/root", "/etc/adbuffer/adbuffer.yaml": "-rw-r--r-- root/root",
		"/usr/lib/systemd/system/adbuffer.service": "-rw-r--r-- root/root", "/usr/lib/systemd/system/adbuffer.socket": "-rw-r--r-- root/root",
		"/usr/lib/systemd/system/adbuffer-admin.socket": "-rw-r--r-- root/root", "/usr/lib/systemd/system/adbuffer.service.d/sockets.conf": "-rw-r--r-- root/root",
		"/usr/lib/sysusers.d/adbuffer.conf": "-rw-r--r-- root/root", "/usr/share/man/man1/adbuffer.1.gz": "-rw-r--r-- root/root",
		"/usr/share/bash-completion/completions/adbuffer": "-rw-r--r-- root/root", "/usr/share/zsh/vendor-completions/_adbuffer": "-rw-r--r-- root/root",
		"/usr/share/fish/vendor_completions.d/adbuffer.fish": "-rw-r--r-- root/root",
		"/usr/share/doc/adbuffer/copyright":                  "-rw-r--r-- root/root",
		"/usr/share/doc/adbuffer/CHANGELOG.md":               "-rw-r--r-- root/root", "/usr/share/doc/adbuffer/examples/reference.yaml": "-rw-r--r-- root/root",
	} {
		if found[path] != want {
			t.Errorf("%s: %q, want %q", path, found[path], want)
		}
	}
	control := run(t, "dpkg-deb", "--field", file)
	for _, want := range []string{"Package: adbuffer\n", "Version: 1.2.3~rc.1-1\n", "Architecture: arm64\n", "Depends: systemd, ca-certificates\n"} {
		testsupport.True(t, strings.Contains(control, want), "%q is missing:\n%s", want, control)
	}
	testsupport.Equal(t, run(t, "dpkg-deb", "--info", file, "conffiles"), "/etc/adbuffer/adbuffer.yaml\n", "conffiles %q")
}

// The text of a release is its section of the changelog; a tag without one makes no release.
func TestTheNotesOfAReleaseAreInTheChangelog(t *testing.T) {
	if notes := run(t, "../../scripts/release-notes", "0.1.0"); !strings.HasPrefix(notes, "The first version.\n") || strings.Contains(notes, "\n## ") {
		t.Errorf("the notes are %s", notes)
	}
	if out, err := exec.Command("../../scripts/release-notes", "0.1").CombinedOutput(); err == nil || !strings.Contains(string(out), "has no section") {
		t.Errorf("of a version that is not there: %v %s", err, out)
	}
}

// The licenses of adbuffer, of Go's library and of each module are in one file.
func TestTheLicensesOfAllModulesAreThere(t *testing.T) {
	r, _ := small(t)
	text, err := os.ReadFile(r.licenses())
	testsupport.NoError(t, err)
	if got := spdxOf(text); !slices.Equal(got, []string{"Apache-2.0", "BSD-3-Clause", "MIT"}) || !strings.Contains(string(text), "\ngithub.com/Masterminds/semver/v3 v") {
		t.Errorf("it has the licenses %v", got)
	}
}

// The image has the files and the settings of the Dockerfile, for both processors.
func TestTheImageIsThatOfTheDockerfile(t *testing.T) {
	r, _ := small(t)
	testsupport.NoError(t, r.image(t.TempDir()))
	dir := t.TempDir()
	run(t, "tar", "-xf", r.file("adbuffer_1.2.3-rc.1_oci.tar"), "-C", dir)
	outer, err := layout.ImageIndexFromPath(dir)
	testsupport.NoError(t, err)
	manifest, err := outer.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "1.2.3-rc.1" {
		t.Fatalf("%v: %+v", err, manifest)
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	if err == nil {
		err = validate.Index(index)
	}
	testsupport.NoError(t, err)
	dockerfile, err := os.ReadFile("../../Dockerfile")
	testsupport.NoError(t, err)
	manifest, err = index.IndexManifest()
	testsupport.NoError(t, err)
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
		image, err := index.Image(m.Digest)
		testsupport.NoError(t, err)
		if files := filesOf(t, image); !maps.Equal(files, map[string]int64{"adbuffer": 0o755, "etc": 0o755, "etc/ssl": 0o755, "etc/ssl/certs": 0o755, "etc/ssl/certs/ca-certificates.crt": 0o644, "licenses.txt": 0o644, "tmp": 0o1777}) {
			t.Errorf("%s has %v", m.Platform, files)
		}
		config, err := image.ConfigFile()
		testsupport.NoError(t, err)
		c := &config.Config
		for _, line := range []string{
			"USER " + c.User, "ENV " + strings.Join(c.Env, " "), `ENTRYPOINT ["` + strings.Join(c.Entrypoint, " ") + `"]`, `CMD ["` + strings.Join(c.Cmd, " ") + `"]`, "STOPSIGNAL " + c.StopSignal, "EXPOSE 8080 9090",
			fmt.Sprintf(`HEALTHCHECK --interval=%v --timeout=%v --start-period=%v --retries=%d CMD ["/adbuffer", "health"]`, c.Healthcheck.Interval, c.Healthcheck.Timeout, c.Healthcheck.StartPeriod, c.Healthcheck.Retries),
		} {
			testsupport.True(t, strings.Contains(string(dockerfile), "\n"+line+"\n"), "the image has %q, the Dockerfile not", line)
		}
		if config.Architecture != m.Platform.Architecture || c.Labels["org.opencontainers.image.revision"] != commit {
			t.Errorf("%s has the configuration %+v", m.Platform, config)
		}
	}
	testsupport.True(t, slices.Equal(platforms, []string{"linux/amd64", "linux/arm64"}), "the image is for %v", platforms)
}

// filesOf returns the modes of an image's files.
func filesOf(t *testing.T, image containers.Image) map[string]int64 {
	t.Helper()
	content := mutate.Extract(image)
	defer content.Close()
	found := make(map[string]int64)
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		testsupport.NoError(t, err)
		found[h.Name] = h.Mode
	}
}

func TestTheBillOfMaterialsNamesTheModules(t *testing.T) {
	r, _ := small(t)
	testsupport.NoError(t, r.billOfMaterials("amd64"))
	in, err := os.Open(r.binary("amd64") + ".cdx.json")
	testsupport.NoError(t, err)
	defer in.Close()
	var bom cyclonedx.BOM
	testsupport.NoError(t, cyclonedx.NewBOMDecoder(in, cyclonedx.BOMFileFormatJSON).Decode(&bom))
	if c := bom.Metadata.Component; c.PackageURL != "pkg:golang/adbuffer@1.2.3-rc.1" || c.Type != cyclonedx.ComponentTypeApplication || (*c.Licenses)[0].License.ID != "Apache-2.0" {
		t.Errorf("it is about %+v", c)
	}
	var names []string
	for _, c := range *bom.Components {
		names = append(names, c.Name+" "+(*c.Licenses)[0].License.ID)
		if c.Name != "std" && (c.Hashes == nil || len((*c.Hashes)[0].Value) != 64) {
			t.Errorf("%s has the hashes %v", c.Name, c.Hashes)
		}
	}
	testsupport.True(t, slices.Equal(names, []string{"std BSD-3-Clause", "github.com/Masterminds/semver/v3 MIT"}), "it names %v", names)
}
