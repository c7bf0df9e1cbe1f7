//go:build linux

package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"adbuffer/internal/testsupport"
)

// Each setting names its reason and the sign that it is needed, and the kernel accepts it. The test
// sets it in a network namespace of its own, so that this machine's settings stay.
func TestEverySysctlHasAReasonAndIsTakenByTheKernel(t *testing.T) {
	file, err := filepath.Abs("99-adbuffer.conf")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	settings := regexp.MustCompile(`(?m)((?:^#.*\n)*)^([a-z0-9_.]+) = (.+)$`).FindAllStringSubmatch(string(text), -1)
	if len(settings) < 4 {
		t.Fatalf("found %q", settings)
	}
	script := "/lib/systemd/systemd-sysctl " + file
	for _, s := range settings {
		if !strings.Contains(s[1], "Shown by:") {
			t.Errorf("%s does not say what shows that it is needed", s[2])
		}
		if !strings.HasPrefix(s[2], "net.") {
			t.Errorf("%s is the whole machine's: the test cannot try it", s[2])
		}
		script += " && cat /proc/sys/" + strings.ReplaceAll(s[2], ".", "/")
	}
	out, err := exec.Command(testsupport.Needs(t, "util-linux", "unshare"), "--net", "--map-root-user", "sh", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(got) != len(settings) {
		t.Fatalf("%s", out)
	}
	for i, s := range settings {
		if strings.Join(strings.Fields(got[i]), " ") != s[3] {
			t.Errorf("%s is %q, want %q", s[2], got[i], s[3])
		}
	}
}
