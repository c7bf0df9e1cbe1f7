package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

const maintainer = "adbuffer maintainers <maintainers@adbuffer.invalid>"

const description = `Forwards ad requests to SSPs over keep-alive connection pools
adbuffer takes ad requests from applications and forwards them to SSPs within a
deadline. Each SSP has a pool of connections, with limits, a breaker and metrics.`

// packages writes the .deb and the .rpm for a processor. manual is the folder of man pages and
// completions.
func (r *release) packages(stage, arch, manual string) error {
	contents, err := r.contentsOfPackage(stage, arch, manual)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name  string
		write nfpm.Packager
		zsh   string // folder of completions
	}{{"deb", deb.Default, "vendor-completions"}, {"rpm", rpm.DefaultRPM, "site-functions"}} {
		info := nfpm.WithDefaults(&nfpm.Info{
			Name: "adbuffer", Arch: arch, Platform: "linux", Version: r.version, Release: "1", Section: "net", Priority: "optional",
			Maintainer: maintainer, Description: description, License: ownLicense, MTime: r.time, DisableGlobbing: true,
			Overridables: nfpm.Overridables{
				Depends:  []string{"systemd", "ca-certificates"},
				Contents: append(slices.Clone(contents), r.content(manual+"/zsh", "/usr/share/zsh/"+f.zsh+"/_adbuffer", 0o644)),
				Scripts:  scripts(r.root, f.name),
				RPM:      nfpm.RPM{BuildHost: "localhost", Summary: strings.SplitN(description, "\n", 2)[0]},
			},
		})
		if err := nfpm.PrepareForPackager(info, f.name); err != nil {
			return err
		}
		var b bytes.Buffer
		if err := f.write.Package(info, &b); err != nil {
			return err
		}
		if err := os.WriteFile(r.file(f.write.ConventionalFileName(info)), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// scripts are the scripts that run when the package is installed and removed. Debian's purge has no
// counterpart in rpm.
func scripts(root, format string) nfpm.Scripts {
	at := func(name string) string { return filepath.Join(root, "deploy/release/package", name) }
	s := nfpm.Scripts{PostInstall: at("postinstall.sh"), PreRemove: at("preremove.sh")}
	if format == "deb" {
		s.PostRemove = at("postremove.sh")
	}
	return s
}

// content is one file of a package. The owner is root.
func (r *release) content(source, destination string, mode fs.FileMode) *files.Content {
	return &files.Content{Source: source, Destination: destination, FileInfo: &files.ContentFileInfo{Mode: mode, MTime: r.time}}
}

// contentsOfPackage returns the files of both packages.
func (r *release) contentsOfPackage(stage, arch, manual string) (files.Contents, error) {
	all := files.Contents{r.content(r.binary(arch), "/usr/bin/adbuffer", 0o755)}
	config := r.content(filepath.Join(r.root, "deploy/release/package/adbuffer.yaml"), "/etc/adbuffer/adbuffer.yaml", 0o644)
	config.Type = files.TypeConfigNoReplace
	all = append(all, config, r.content(r.licenses(), "/usr/share/doc/adbuffer/copyright", 0o644))

	unit, err := os.ReadFile(filepath.Join(r.root, "deploy/systemd/adbuffer.service"))
	if err != nil {
		return nil, err
	}
	own := filepath.Join(stage, "adbuffer.service")
	if err := os.WriteFile(own, bytes.ReplaceAll(unit, []byte("/usr/local/bin/"), []byte("/usr/bin/")), 0o644); err != nil {
		return nil, err
	}
	all = append(all, r.content(own, "/usr/lib/systemd/system/adbuffer.service", 0o644))
	for from, to := range map[string]string{
		"deploy/systemd/adbuffer.socket":        "/usr/lib/systemd/system/",
		"deploy/systemd/adbuffer-admin.socket":  "/usr/lib/systemd/system/",
		"deploy/release/package/sockets.conf":   "/usr/lib/systemd/system/adbuffer.service.d/",
		"deploy/release/package/sysusers.conf":  "/usr/lib/sysusers.d/adbuffer.conf",
		"CHANGELOG.md":                          "/usr/share/doc/adbuffer/",
		"config/reference.yaml":                 "/usr/share/doc/adbuffer/examples/",
		"config/adbuffer.schema.json":           "/usr/share/doc/adbuffer/examples/",
		"config/reference.test.yaml":            "/usr/share/doc/adbuffer/examples/",
		"config/reference.test.json":            "/usr/share/doc/adbuffer/examples/",
		"config/adbuffer.test.schema.json":      "/usr/share/doc/adbuffer/examples/",
		"deploy/systemd/secrets.conf":           "/usr/share/doc/adbuffer/examples/",
		"deploy/systemd/99-adbuffer.conf":       "/usr/share/doc/adbuffer/examples/",
		"deploy/grafana/adbuffer.json":          "/usr/share/doc/adbuffer/examples/grafana/",
		"deploy/prometheus/RUNBOOK.md":          "/usr/share/doc/adbuffer/examples/prometheus/",
		"deploy/prometheus/alerts.rules.yml":    "/usr/share/doc/adbuffer/examples/prometheus/",
		"deploy/prometheus/recording.rules.yml": "/usr/share/doc/adbuffer/examples/prometheus/",
	} {
		if strings.HasSuffix(to, "/") {
			to += filepath.Base(from)
		}
		all = append(all, r.content(filepath.Join(r.root, from), to, 0o644))
	}
	for name, to := range map[string]string{"bash": "bash-completion/completions/adbuffer", "fish": "fish/vendor_completions.d/adbuffer.fish"} {
		all = append(all, r.content(filepath.Join(manual, name), "/usr/share/"+to, 0o644))
	}
	pages, err := filepath.Glob(manual + "/man/*.gz")
	for _, page := range pages {
		all = append(all, r.content(page, "/usr/share/man/man1/"+filepath.Base(page), 0o644))
	}
	return all, err
}

// manual writes completions and man pages, which the binary for this machine makes. It returns their
// folder.
func (r *release) manual(ctx context.Context, stage string) (dir string, err error) {
	dir = filepath.Join(stage, "manual")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	program := r.binary(runtime.GOARCH)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		text, err := r.command(ctx, nil, program, "completion", shell)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, shell), text, 0o644)
		}
		if err != nil {
			return "", err
		}
	}
	if _, err := r.command(ctx, []string{"ADBUFFER_MAN_PAGES=" + filepath.Join(dir, "man")}, "go", "test", "-count=1", "-run", "^TestManPages$", "-ldflags", "-X adbuffer/internal/app/app.Version="+r.version, "adbuffer/cmd/adbuffer"); err != nil {
		return "", err
	}
	pages, err := filepath.Glob(dir + "/man/*")
	for _, page := range pages {
		if err := compress(page); err != nil {
			return "", err
		}
	}
	return dir, err
}

// compress replaces a file by file.gz, which has no time and no name inside.
func compress(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := os.WriteFile(file+".gz", b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Remove(file)
}
