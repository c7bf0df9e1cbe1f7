package deploy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// TestTheBlocksOfTheREADMEWork runs all its blocks of commands, one after the other in one folder, unchanged but
// for three exceptions. It replaces the ports and the socket's path, which may be in use on this machine. It
// builds nothing, since the binary exists already. A slow machine gets long deadlines, waits for the
// simulated SSPs, and sleeps until the output has the text for which the commands sleep.
func TestTheBlocksOfTheREADMEWork(t *testing.T) {
	testsupport.Needs(t, "curl", "curl")
	want := map[string][]string{
		"See it": {"parallel-first", "fill"},
		"As a sidecar": {
			"ready\n", "HTTP/1.1 200 OK", "X-Adbuffer-Source: ssp/openx", `"seat":"sim"`, "in place", "configuration reloaded",
		},
		"As an edge service": {
			"ready\n", "HTTP/2 200", "x-adbuffer-source: ssp/", `"seat":"sim"`, "another process has taken over", "stopped",
		},
		"As an exchange": {
			"HTTP/1.1 200 OK", "X-Adbuffer-Source: proxy/merged", `"seatbid"`, "auction (parallel-all)", "device.geo.country must be in",
		},
	}
	dir := t.TempDir()
	testsupport.NoError(t, os.CopyFS(filepath.Join(dir, "config"), os.DirFS("../../../../config")))
	testsupport.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	testsupport.NoError(t, os.Symlink(e2e.Binary(t), filepath.Join(dir, "bin", "adbuffer")))
	elsewhere := []string{"/tmp/adbuffer.sock", filepath.Join(dir, "adbuffer.sock"), "go run ./cmd/adbuffer", "bin/adbuffer", "make build\n", ""}
	for _, fixed := range []string{"8080", "9000", "9001", "9002", "9003", "9004", "9005", "8443", "9090"} {
		elsewhere = append(elsewhere, ":"+fixed, ":"+testsupport.Port(t, testsupport.FreeAddr(t)))
	}
	moved := strings.NewReplacer(elsewhere...)
	awaits := strings.NewReplacer(
		"sleep 3\n", "until grep --quiet 'configuration reloaded' output; do sleep 0.2; done\n",
		"sleep 2\n", "until grep --quiet 'another process has taken over' output; do sleep 0.2; done\n",
	)
	for _, name := range []string{"sidecar.yaml", "edge.yaml", "openrtb.yaml"} {
		rewrite(t, filepath.Join(dir, "config", name), moved)
	}
	readme, err := os.ReadFile("../../../../README.md")
	testsupport.NoError(t, err)
	ran := 0
	for _, section := range strings.Split(string(readme), "\n## ")[1:] {
		heading, rest, _ := strings.Cut(section, "\n")
		for _, block := range strings.Split(rest, "```sh\n")[1:] {
			script, _, _ := strings.Cut(block, "```")
			// On a slow machine, adbuffer may be ready before the SSPs.
			sims := fmt.Sprintf("until [ \"$(grep --count 'simulated SSP, listening' output)\" = %d ]; do sleep 0.1; done\n", strings.Count(script, "bin/adbuffer sim"))
			script = strings.Replace(script, "bin/adbuffer serve", sims+"bin/adbuffer serve", 1)
			ctx, cancel := context.WithTimeout(t.Context(), 2*testsupport.Patience)
			cmd := exec.CommandContext(ctx, "bash", "-eu", "-o", "pipefail", "-c", "exec >output 2>&1\n"+moved.Replace(awaits.Replace(script))+"\nwait\n")
			cmd.Dir, cmd.WaitDelay = dir, time.Second
			cmd.Env = append(os.Environ(), "ADBUFFER_ADMIN_LISTEN="+moved.Replace("127.0.0.1:9090"),
				"ADBUFFER_DEADLINE_DEFAULT=20s", "ADBUFFER_DEADLINE_MAX=30s", "ADBUFFER_SSP_DEFAULTS_TIMEOUTS_CONNECT=10s")
			err := cmd.Run()
			cancel()
			out := e2e.ReadFile(t, filepath.Join(dir, "output"))
			testsupport.MustTrue(t, err == nil, "%s: %v\n%s", heading, err, out)
			testsupport.True(t, want[heading] != nil, "no output is expected of the commands of %q", heading)
			for _, w := range want[heading] {
				testsupport.True(t, strings.Contains(out, w), "%s: the commands print no %q:\n%s", heading, w, out)
			}
			ran++
		}
	}
	testsupport.Equal(t, ran, len(want), "%d blocks of commands were run")
}

func rewrite(t *testing.T, file string, r *strings.Replacer) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(r.Replace(string(text))), 0o600)
	}
	testsupport.NoError(t, err)
}
