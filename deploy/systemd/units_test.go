//go:build linux

package systemd

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"

	"adbuffer/internal/setup/config"
	"adbuffer/internal/test/testsupport"
)

// maxExposure is the highest exposure that `systemd-analyze security` may report for the unit; the
// scale ends at 10. The unit keeps the network, which the service needs, and /proc.
const maxExposure = 1.5

// installed is the path at which the unit files expect the binary.
const installed = "/usr/local/bin/adbuffer"

// section holds the values of one section of a unit file, by key, in order.
func section(t *testing.T, file, name string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	testsupport.NoError(t, err)
	options, err := unit.DeserializeOptions(bytes.NewReader(text))
	testsupport.NoError(t, err)
	values := map[string][]string{}
	for _, o := range options {
		if o.Section == name {
			values[o.Name] = append(values[o.Name], o.Value)
		}
	}
	return values
}

// one returns the value of a key that must have exactly one.
func one(t *testing.T, values map[string][]string, key string) string {
	t.Helper()
	testsupport.MustTrue(t, len(values[key]) == 1, "%s has the values %q, want one", key, values[key])
	return values[key][0]
}

// install copies the unit files and the drop-in for secrets to a folder, as an administrator would.
// It replaces the path of the binary by the path of a program that this machine has.
func install(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for from, to := range map[string]string{
		"adbuffer.service": "adbuffer.service", "adbuffer.socket": "adbuffer.socket", "adbuffer-admin.socket": "adbuffer-admin.socket",
		"secrets.conf": "adbuffer.service.d/secrets.conf",
	} {
		text, err := os.ReadFile(from)
		testsupport.NoError(t, err)
		to = filepath.Join(dir, to)
		testsupport.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
		testsupport.NoError(t, os.WriteFile(to, bytes.ReplaceAll(text, []byte(installed), []byte(os.Args[0])), 0o644))
	}
	return dir
}

func TestSystemdFindsNoFaultInTheUnits(t *testing.T) {
	dir := install(t)
	cmd := exec.Command(testsupport.Needs(t, "systemd", "systemd-analyze"), "verify", "--man=no", "adbuffer.service", "adbuffer.socket", "adbuffer-admin.socket")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":", "SYSTEMD_LOG_LEVEL=warning")
	out, err := cmd.CombinedOutput()
	testsupport.True(t, err == nil && len(out) == 0, "systemd-analyze verify: %v\n%s", err, out)
}

func TestTheServiceIsHardened(t *testing.T) {
	out, err := exec.Command(testsupport.Needs(t, "systemd", "systemd-analyze"), "security", "--offline=true", "--no-pager", filepath.Join(install(t), "adbuffer.service")).CombinedOutput()
	found := regexp.MustCompile(`Overall exposure level for adbuffer.service: ([0-9.]+) `).FindSubmatch(out)
	testsupport.MustTrue(t, err == nil && found != nil, "systemd-analyze security: %v\n%s", err, out)
	exposure, err := strconv.ParseFloat(string(found[1]), 64)
	testsupport.True(t, err == nil && exposure <= maxExposure, "exposure %v, want at most %v (%v)\n%s", exposure, maxExposure, err, out)
	t.Logf("exposure %v of 10", exposure)
}

func TestTheSocketsAreNamedAsTheListeners(t *testing.T) {
	for file, name := range map[string]string{"adbuffer.socket": "traffic", "adbuffer-admin.socket": "admin"} {
		s := section(t, file, "Socket")
		testsupport.Equal(t, one(t, s, "FileDescriptorName"), name, "%[2]s: %[1]q", file)
		one(t, s, "ListenStream") // a second would have the same name
		testsupport.Equal(t, one(t, s, "Service"), "adbuffer.service", "%[2]s starts %[1]s", file)
	}
}

// The unit's limits are enough for the configuration's defaults, with four SSPs.
func TestTheLimitsOfTheUnitFitTheDefaults(t *testing.T) {
	cfg, _, err := config.Parse([]byte(`
ssps: [{name: a, endpoints: ["http://127.0.0.1:1/"]}]
routes: [{name: default, match: {path: /fillbuffer}, ssps: [a]}]
`), nil)
	testsupport.NoError(t, err)
	s := section(t, "adbuffer.service", "Service")
	duration := func(key string) time.Duration {
		d, err := time.ParseDuration(one(t, s, key))
		testsupport.NoError(t, err)
		return d
	}
	testsupport.AtLeast(t, duration("TimeoutStopSec"), cfg.Server.Drain.Delay+cfg.Server.Drain.Timeout+time.Second, "TimeoutStopSec %v")
	testsupport.AtLeast(t, duration("TimeoutStartSec"), cfg.Admin.WarmupTimeout+5*time.Second, "TimeoutStartSec %v")
	files, err := strconv.Atoi(one(t, s, "LimitNOFILE"))
	if need := cfg.Server.MaxConnections + 4*cfg.SSPs[0].Pool.MaxConns + 128; err != nil || files < need {
		t.Errorf("LimitNOFILE %d, want at least %d (%v)", files, need, err)
	}
	gib, err := strconv.Atoi(strings.TrimSuffix(one(t, s, "MemoryMax"), "G"))
	const idleClient = 18_500
	memory := gib << 30
	if need := cfg.Server.MaxConnections*idleClient + 2*cfg.Server.MaxBufferedBytes; err != nil || memory < need {
		t.Errorf("MemoryMax %d, want at least %d (%v)", memory, need, err)
	}
}
