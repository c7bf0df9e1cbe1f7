package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// check accepted a load for an SSP that does not exist, and then compared nothing.
func TestCheckTakesALoadOnlyForItsSSPs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "adbuffer.yaml")
	if err := os.WriteFile(file, []byte(`
ssps: [{name: a, endpoints: ["http://192.0.2.1/", {url: "http://192.0.2.2/", priority: 1}], pool: {max_conns: 8}}]
routes: [{name: r, match: {path: /}, ssps: [a]}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	const load = " --rps 1000 --p50 80ms --p99 250ms"
	for _, c := range []struct {
		flags string
		code  int
		want  string
	}{
		{load, exitOK, "priority 1 (1 endpoint)"},
		{load + " --ssp a", exitOK, "priority 1 (1 endpoint)"},
		{load + " --ssp b", exitUsage, "--ssp b: the file has no such SSP"},
		{" --ssp a", exitUsage, "are for the load of --rps"},
		{" --replicas 3", exitUsage, "are for the load of --rps"},
	} {
		out, log, code := runHere(t, strings.Fields("check --quiet --config "+file+c.flags)...)
		if code != c.code || !strings.Contains(out+log, c.want) {
			t.Errorf("check%s: exit status %d: %s%s, want %d and %q", c.flags, code, out, log, c.code, c.want)
		}
	}
}
