//go:build linux

package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// Each setting names its reason and the sign that it is needed, and the kernel accepts it. The test
// sets it in a network namespace of its own, so that this machine's settings stay.
func TestEverySysctlHasAReasonAndIsTakenByTheKernel(t *testing.T) {
	file, err := filepath.Abs("99-adbuffer.conf")
	testsupport.NoError(t, err)
	text, err := os.ReadFile(file)
	testsupport.NoError(t, err)
	settings := regexp.MustCompile(`(?m)((?:^#.*\n)*)^([a-z0-9_.]+) = (.+)$`).FindAllStringSubmatch(string(text), -1)
	testsupport.MustTrue(t, len(settings) >= 4, "found %q", settings)
	script := "/lib/systemd/systemd-sysctl " + file
	for _, s := range settings {
		testsupport.True(t, strings.Contains(s[1], "Shown by:"), "%s does not say what shows that it is needed", s[2])
		testsupport.True(t, strings.HasPrefix(s[2], "net."), "%s is the whole machine's: the test cannot try it", s[2])
		script += " && cat /proc/sys/" + strings.ReplaceAll(s[2], ".", "/")
	}
	out, err := exec.Command(testsupport.Needs(t, "util-linux", "unshare"), "--net", "--map-root-user", "sh", "-c", script).CombinedOutput()
	testsupport.MustTrue(t, err == nil, "%v: %s", err, out)
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	testsupport.MustTrue(t, len(got) == len(settings), "%s", out)
	for i, s := range settings {
		testsupport.True(t, strings.Join(strings.Fields(got[i]), " ") == s[3], "%s is %q, want %q", s[2], got[i], s[3])
	}
}
