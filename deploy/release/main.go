// Command release writes a release of adbuffer: binaries, packages, an image, lists of what they
// contain, and checksums. The same commit and Go version give the same bytes, on any machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/Masterminds/semver/v3"
)

// release is what is made from one commit.
type release struct {
	root    string    // of the repository
	out     string    // folder of the files
	version string    // without a leading v
	commit  string    // full hash
	time    time.Time // of the commit; the only time in all files
	goflags string    // GOFLAGS of go's commands; empty for a release

	goroot, modcache string // folders of Go's library and of modules, for their licenses
}

// architectures are Go's names of the processors.
var architectures = []string{"amd64", "arm64"}

func main() {
	r := release{}
	flag.StringVar(&r.root, "root", "../..", "the repository")
	flag.StringVar(&r.out, "out", "../../dist", "folder to write to; its content is removed")
	flag.StringVar(&r.version, "version", "", "version, such as 0.1.0")
	flag.StringVar(&r.commit, "commit", "", "hash of the commit")
	seconds := flag.Int64("time", 0, "time of the commit in seconds since 1970, as SOURCE_DATE_EPOCH")
	flag.Parse()
	r.time = time.Unix(*seconds, 0).UTC()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := r.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run writes the whole release.
func (r *release) run(ctx context.Context) error {
	if _, err := semver.StrictNewVersion(r.version); err != nil {
		return fmt.Errorf("-version %q: %w; write for example 0.1.0", r.version, err)
	}
	if r.commit == "" || r.time.Unix() == 0 {
		return fmt.Errorf("-commit and -time must be set; make release sets them")
	}
	out, err := filepath.Abs(r.out)
	if err != nil {
		return err
	}
	r.out = out
	if err := r.findGo(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	for _, arch := range architectures {
		if err := r.build(ctx, arch, r.binary(arch)); err != nil {
			return err
		}
	}
	stage, err := os.MkdirTemp("", "adbuffer-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	manual, err := r.manual(ctx, stage)
	if err != nil {
		return err
	}
	return r.pack(stage, manual)
}

// pack writes all files that are made from the binaries. stage is a folder for files on the way, manual
// that of man pages and completions.
func (r *release) pack(stage, manual string) error {
	if err := r.writeLicenses(architectures...); err != nil {
		return err
	}
	for _, arch := range architectures {
		if err := r.billOfMaterials(arch); err != nil {
			return err
		}
		if err := r.packages(stage, arch, manual); err != nil {
			return err
		}
	}
	if err := r.image(stage); err != nil {
		return err
	}
	return r.sum()
}

// file is the path of a file of the release.
func (r *release) file(name string) string { return filepath.Join(r.out, name) }

// binary is the path of the binary for a processor.
func (r *release) binary(arch string) string {
	return r.file("adbuffer_" + r.version + "_linux_" + arch)
}
