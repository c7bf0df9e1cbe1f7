package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// build makes the binary for a processor of Linux. No setting of this machine changes it, and no path
// of it is inside: go env's settings are replaced, and the commit comes from r, not from git.
func (r *release) build(ctx context.Context, arch, file string) error {
	_, err := r.command(ctx, []string{"GOOS=linux", "GOARCH=" + arch}, r.buildCommand(file)...)
	return err
}

func (r *release) buildCommand(file string) []string {
	return []string{"go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", "-s -w " + r.names(), "-o", file, "./cmd/adbuffer"}
}

// names are the flags of the linker that give the binary its version and commit.
func (r *release) names() string {
	return "-X adbuffer/internal/app/app.Version=" + r.version + " -X adbuffer/internal/app/app.Commit=" + r.commit
}

// findGo finds Go's folders.
func (r *release) findGo(ctx context.Context) error {
	out, err := r.command(ctx, nil, "go", "env", "GOROOT", "GOMODCACHE")
	if err != nil {
		return err
	}
	r.goroot, r.modcache, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	return nil
}

// command runs a command in the repository, and returns its output.
func (r *release) command(ctx context.Context, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="+r.goflags, "GOEXPERIMENT=", "GODEBUG=", "GOFIPS140=off", "GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off", "SOURCE_DATE_EPOCH="+fmt.Sprint(r.time.Unix()))
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// sum writes the checksums of all files, as sha256sum does.
func (r *release) sum() error {
	entries, err := os.ReadDir(r.out) // sorted by name
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, e := range entries {
		in, err := os.Open(r.file(e.Name()))
		if err != nil {
			return err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, in)
		in.Close()
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%x  %s\n", sum.Sum(nil), e.Name())
	}
	return os.WriteFile(r.file("SHA256SUMS"), []byte(list.String()), 0o644)
}
