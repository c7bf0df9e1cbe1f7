package main

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"adbuffer/internal/test/testsupport/boottest"
)

const (
	configFile = "/etc/adbuffer/adbuffer.yaml"
	units      = "adbuffer.service adbuffer.socket adbuffer-admin.socket"
	simUnit    = "[Service]\nExecStart=/share/sim sim\n"
)

// inside runs in the container.
func inside(m *boottest.Machine) {
	m.Run("mv adbuffer_0.1.0_linux_* sim")
	before := traces()
	boottest.Must(os.WriteFile("/etc/systemd/system/sim.service", []byte(simUnit), 0o644))
	m.Run("systemctl daemon-reload; systemctl start sim")
	tryPackages(m, packageTool{
		install: func(version string) string {
			return "dpkg --force-unsafe-io --no-triggers --install adbuffer_" + version + "-1_*.deb"
		},
		remove: "dpkg --no-triggers --remove adbuffer",
	})
	m.Run("dpkg --no-triggers --purge adbuffer")
	boottest.Must(os.Remove("/etc/systemd/system/sim.service"))
	if after := traces(); !slices.Equal(before, after) {
		panic(fmt.Sprintf("a purge leaves %q, want %q as before", after, before))
	}
	if rpms, err := filepath.Glob("*.rpm"); err == nil && len(rpms) > 0 {
		tryPackages(m, packageTool{ // Debian knows nothing of packages that rpm installs
			install: func(version string) string {
				return "rpm --force-debian --nodeps --oldpackage -U adbuffer-" + version + "-1.*.rpm"
			},
			remove: "rpm --force-debian --erase adbuffer",
		})
	}
}

// packageTool is dpkg or rpm.
type packageTool struct {
	install func(version string) string
	remove  string
}

// tryPackages installs the first version, upgrades to the second one, and removes it.
func tryPackages(m *boottest.Machine, tool packageTool) {
	m.Run(tool.install("0.1.0"))
	if m.Try("systemctl is-active "+units) != "inactive\ninactive\ninactive\nexit status 3\n" || m.Try("systemctl is-enabled "+units) != "disabled\ndisabled\ndisabled\nexit status 1\n" {
		panic("installed, and not stopped: " + m.Try("systemctl status "+units))
	}
	m.Run("adbuffer check --quiet --config " + configFile + "; getent passwd adbuffer")
	m.Run("systemctl enable --now adbuffer")
	m.Ad()
	if want := m.Run("id -u adbuffer"); m.Run("stat -c %u /proc/"+m.Property("MainPID")) != want {
		panic("it does not run as the user of the package, " + want)
	}
	if status, err := os.ReadFile("/proc/" + m.Property("MainPID") + "/status"); err != nil || !strings.Contains(string(status), "Seccomp:\t2") {
		panic(fmt.Sprintf("it is not confined: %v %s", err, status))
	}

	// The configuration needs a variable that only the unit has.
	const dropIn, variables = "/etc/systemd/system/adbuffer.service.d", "/etc/adbuffer/variables"
	boottest.Must(os.WriteFile(variables, []byte("MAX_CONNS='65'\nOTHER=\"two words\"\n"), 0o644))
	boottest.Must(os.MkdirAll(dropIn, 0o755))
	boottest.Must(os.WriteFile(dropIn+"/variables.conf", []byte("[Service]\nEnvironmentFile="+variables+"\n"), 0o644))
	m.Run("sed -i 's/max_conns: 64/max_conns: ${MAX_CONNS}/' " + configFile + "; systemctl daemon-reload; systemctl restart adbuffer")
	serves(m, "0.1.0")
	m.UnderRequests(5*time.Millisecond, func() { m.Run(tool.install("0.1.1")) })
	serves(m, "0.1.1")
	if config := m.Get("http://127.0.0.1:9090/config"); !strings.Contains(config, "max_conns: 65") {
		panic("the upgrade replaced the configuration")
	}

	// A version that refuses the configuration does not replace one that runs.
	config, err := os.ReadFile(configFile)
	boottest.Must(err)
	boottest.Must(os.WriteFile(configFile, append(slices.Clone(config), "rutes: []\n"...), 0o644))
	if out := m.Run(tool.install("0.1.0")); !strings.Contains(out, "the previous version keeps running") {
		panic("an upgrade to a version that refuses the configuration says " + out)
	}
	serves(m, "0.1.1")
	boottest.Must(os.WriteFile(configFile, config, 0o644))
	m.Run("systemctl restart adbuffer")
	serves(m, "0.1.0")

	boottest.Must(os.RemoveAll(dropIn))
	boottest.Must(os.Remove(variables))
	m.Run(tool.remove)
	if out := m.Try("systemctl is-active "+units) + m.Try("pgrep -x adbuffer") + m.Try("ls /etc/systemd/system/*.wants | grep adbuffer"); strings.Contains(out, "active\n") && !strings.HasPrefix(out, "inactive\ninactive\ninactive\n") || strings.Contains(out, ".socket\n") {
		panic("removed, and still there: " + out)
	}
	if _, err := http.Get("http://127.0.0.1:8080/"); err == nil {
		panic("removed, and something listens")
	}
}

// traces returns all files whose names have adbuffer's, and its lines in the list of users.
func traces() (found []string) {
	for _, root := range []string{"/etc", "/usr", "/var", "/run", "/home", "/opt"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if strings.Contains(filepath.Base(path), "adbuffer") {
				found = append(found, path)
			}
			if os.IsNotExist(err) {
				return nil
			}
			return err
		})
		boottest.Must(err)
	}
	for _, list := range []string{"/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow"} {
		text, err := os.ReadFile(list)
		boottest.Must(err)
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "adbuffer:") {
				found = append(found, list+": "+line)
			}
		}
	}
	return found
}

// serves checks that this version serves.
func serves(m *boottest.Machine, version string) {
	m.Ad()
	if metrics := m.Get("http://127.0.0.1:9090/metrics"); !strings.Contains(metrics, `version="`+version+`"`) {
		panic("not version " + version + " serves: " + m.Try("systemctl status --no-pager adbuffer"))
	}
}
