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

	"adbuffer/internal/e2e"
	"adbuffer/internal/testsupport"
)

// TestTheQuickstartsOfTheREADMEWork runs their commands unchanged, with three exceptions. It
// replaces the ports and the socket's path, which may be in use on this machine. It does not run
// make build, since the binary exists already. A slow machine gets long deadlines, waits for the
// simulated SSPs, and sleeps until the output has the text for which the commands sleep.
func TestTheQuickstartsOfTheREADMEWork(t *testing.T) {
	testsupport.Needs(t, "curl", "curl")
	for heading, want := range map[string][]string{
		"## Run it": {
			"is valid", "ready\n", "HTTP/1.1 200 OK", "X-Adbuffer-Source: ssp/openx", `"seat":"sim"`,
		},
		"## As a sidecar": {
			"ready\n", "HTTP/1.1 200 OK", "X-Adbuffer-Source: ssp/openx", `"seat":"sim"`,
			"in place", "configuration reloaded",
		},
		"## As an edge service": {
			"ready\n", "HTTP/2 200", "x-adbuffer-source: ssp/", `"seat":"sim"`,
			"another process has taken over", "stopped",
		},
	} {
		t.Run(strings.TrimPrefix(heading, "## "), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			script, found := strings.CutPrefix(commandsUnder(t, heading), "make build\n")
			testsupport.MustTrue(t, found, "the commands do not begin with make build")
			// On a slow machine, adbuffer may be ready before the SSPs.
			sims := fmt.Sprintf("until [ \"$(grep --count 'simulated SSP, listening' output)\" = %d ]; do sleep 0.1; done\n", strings.Count(script, "bin/adbuffer sim"))
			script = strings.Replace(script, "bin/adbuffer serve", sims+"bin/adbuffer serve", 1)
			testsupport.NoError(t, os.CopyFS(filepath.Join(dir, "config"), os.DirFS("../../../config")))
			testsupport.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
			testsupport.NoError(t, os.Symlink(e2e.Binary(t), filepath.Join(dir, "bin", "adbuffer")))
			elsewhere := []string{"/tmp/adbuffer.sock", filepath.Join(dir, "adbuffer.sock")}
			for _, fixed := range []string{"8080", "9000", "9001", "8443", "9090"} {
				elsewhere = append(elsewhere, ":"+fixed, ":"+testsupport.Port(t, testsupport.FreeAddr(t)))
			}
			moved := strings.NewReplacer(elsewhere...)
			awaits := strings.NewReplacer(
				"sleep 3\n", "until grep --quiet 'configuration reloaded' output; do sleep 0.2; done\n",
				"sleep 2\n", "until grep --quiet 'another process has taken over' output; do sleep 0.2; done\n",
			)
			for _, name := range []string{"minimal.yaml", "sidecar.yaml", "edge.yaml"} {
				rewrite(t, filepath.Join(dir, "config", name), moved)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*testsupport.Patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, "bash", "-eu", "-o", "pipefail", "-c", "exec >output 2>&1\n"+moved.Replace(awaits.Replace(script))+"\nwait\n")
			cmd.Dir, cmd.WaitDelay = dir, time.Second
			cmd.Env = append(os.Environ(), "ADBUFFER_ADMIN_LISTEN="+moved.Replace("127.0.0.1:9090"),
				"ADBUFFER_DEADLINE_DEFAULT=20s", "ADBUFFER_DEADLINE_MAX=30s", "ADBUFFER_SSP_DEFAULTS_TIMEOUTS_CONNECT=10s")
			err := cmd.Run()
			out := e2e.ReadFile(t, filepath.Join(dir, "output"))
			testsupport.MustTrue(t, err == nil, "%v\n%s", err, out)
			for _, w := range want {
				testsupport.True(t, strings.Contains(out, w), "the commands print no %q:\n%s", w, out)
			}
		})
	}
}

// commandsUnder returns the first block of shell commands below a heading.
func commandsUnder(t *testing.T, heading string) string {
	t.Helper()
	readme, err := os.ReadFile("../../../README.md")
	testsupport.NoError(t, err)
	_, section, found := strings.Cut(string(readme), "\n"+heading+"\n")
	testsupport.MustTrue(t, found, "README.md has no heading %q", heading)
	section, _, _ = strings.Cut(section, "\n## ")
	_, block, found := strings.Cut(section, "```sh\n")
	testsupport.MustTrue(t, found, "%q has no commands", heading)
	block, _, _ = strings.Cut(block, "```")
	return block
}

func rewrite(t *testing.T, file string, r *strings.Replacer) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(r.Replace(string(text))), 0o600)
	}
	testsupport.NoError(t, err)
}
