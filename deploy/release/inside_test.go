package main

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// insideDone is the last line of the output if every check passed.
const insideDone = "the packages work"

const (
	configFile = "/etc/adbuffer/adbuffer.yaml"
	units      = "adbuffer.service adbuffer.socket adbuffer-admin.socket"
	simUnit    = "[Service]\nExecStart=/share/sim sim\n"
)

// inside runs in the container. It returns the exit status.
func inside() (code int) {
	m := &machine{}
	defer func() {
		if p := recover(); p != nil {
			fmt.Println(p)
			fmt.Println(m.try("journalctl --no-pager -o cat"))
			code = 1
		}
	}()
	m.run("mv adbuffer_0.1.0_linux_* sim")
	before := traces()
	must(os.WriteFile("/etc/systemd/system/sim.service", []byte(simUnit), 0o644))
	m.run("systemctl daemon-reload; systemctl start sim")
	m.tryPackages(packageTool{
		install: func(version string) string {
			return "dpkg --force-unsafe-io --no-triggers --install adbuffer_" + version + "-1_*.deb"
		},
		remove: "dpkg --no-triggers --remove adbuffer",
	})
	m.run("dpkg --no-triggers --purge adbuffer")
	must(os.Remove("/etc/systemd/system/sim.service"))
	if after := traces(); !slices.Equal(before, after) {
		panic(fmt.Sprintf("a purge leaves %q, want %q as before", after, before))
	}
	if rpms, err := filepath.Glob("*.rpm"); err == nil && len(rpms) > 0 {
		m.tryPackages(packageTool{ // Debian knows nothing of packages that rpm installs
			install: func(version string) string {
				return "rpm --force-debian --nodeps --oldpackage -U adbuffer-" + version + "-1.*.rpm"
			},
			remove: "rpm --force-debian --erase adbuffer",
		})
	}
	fmt.Println(insideDone)
	return 0
}

// packageTool is dpkg or rpm.
type packageTool struct {
	install func(version string) string
	remove  string
}

// tryPackages installs the first version, upgrades to the second one, and removes it.
func (m *machine) tryPackages(tool packageTool) {
	m.run(tool.install("0.1.0"))
	if m.try("systemctl is-active "+units) != "inactive\ninactive\ninactive\nexit status 3\n" || m.try("systemctl is-enabled "+units) != "disabled\ndisabled\ndisabled\nexit status 1\n" {
		panic("installed, and not stopped: " + m.try("systemctl status "+units))
	}
	m.run("adbuffer check --quiet --config " + configFile + "; getent passwd adbuffer")
	m.run("systemctl enable --now adbuffer")
	m.ad()
	if want := m.run("id -u adbuffer"); m.run("stat -c %u /proc/"+m.property("MainPID")) != want {
		panic("it does not run as the user of the package, " + want)
	}
	if status, err := os.ReadFile("/proc/" + m.property("MainPID") + "/status"); err != nil || !strings.Contains(string(status), "Seccomp:\t2") {
		panic(fmt.Sprintf("it is not confined: %v %s", err, status))
	}

	m.run("sed -i 's/max_conns: 64/max_conns: 65/' " + configFile)
	m.serves("0.1.0")
	m.underRequests(func() { m.run(tool.install("0.1.1")) })
	m.serves("0.1.1")
	if config := m.get("http://127.0.0.1:9090/config"); !strings.Contains(config, "max_conns: 65") {
		panic("the upgrade replaced the configuration")
	}

	// A version that refuses the configuration does not replace one that runs.
	config, err := os.ReadFile(configFile)
	must(err)
	must(os.WriteFile(configFile, append(slices.Clone(config), "rutes: []\n"...), 0o644))
	if out := m.run(tool.install("0.1.0")); !strings.Contains(out, "the previous version keeps running") {
		panic("an upgrade to a version that refuses the configuration says " + out)
	}
	m.serves("0.1.1")
	must(os.WriteFile(configFile, config, 0o644))
	m.run("systemctl restart adbuffer")
	m.serves("0.1.0")

	m.run(tool.remove)
	if out := m.try("systemctl is-active "+units) + m.try("pgrep -x adbuffer") + m.try("ls /etc/systemd/system/*.wants | grep adbuffer"); strings.Contains(out, "active\n") && !strings.HasPrefix(out, "inactive\ninactive\ninactive\n") || strings.Contains(out, ".socket\n") {
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
		must(err)
	}
	for _, list := range []string{"/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow"} {
		text, err := os.ReadFile(list)
		must(err)
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "adbuffer:") {
				found = append(found, list+": "+line)
			}
		}
	}
	return found
}

// machine is the container. Its methods run in it, and panic with an error.
type machine struct{}

// try runs a command of the shell that may fail.
func (m *machine) try(command string) string {
	out, err := exec.Command("sh", "-euc", command).CombinedOutput()
	if err != nil {
		out = fmt.Appendf(out, "%v\n", err)
	}
	return string(out)
}

// run runs a command of the shell that must succeed.
func (m *machine) run(command string) string {
	start := time.Now()
	out, err := exec.Command("sh", "-euc", command).CombinedOutput()
	fmt.Printf("%s (%v)\n", command, time.Since(start).Round(time.Millisecond))
	if err != nil {
		panic(fmt.Sprintf("%s: %v: %s", command, err, out))
	}
	return string(out)
}

// property returns a property of the service.
func (m *machine) property(name string) string {
	return strings.TrimSpace(m.try("systemctl show --value --property=" + name + " adbuffer.service"))
}

// serves checks that this version serves.
func (m *machine) serves(version string) {
	m.ad()
	if metrics := m.get("http://127.0.0.1:9090/metrics"); !strings.Contains(metrics, `version="`+version+`"`) {
		panic("not version " + version + " serves: " + m.try("systemctl status --no-pager adbuffer"))
	}
}

// underRequests calls change while requests arrive, each on its own connection. None may fail.
func (m *machine) underRequests(change func()) {
	stop := make(chan struct{})
	var requests sync.WaitGroup
	var mu sync.Mutex // guards the variables below
	var failures []any
	n := 0
	for range 4 {
		requests.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				func() {
					defer func() {
						p := recover()
						mu.Lock()
						defer mu.Unlock()
						n++
						if p != nil {
							failures = append(failures, p)
						}
					}()
					m.ad()
				}()
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	change()
	close(stop)
	requests.Wait()
	if n < 10 || len(failures) > 0 {
		panic(fmt.Sprintf("%d of %d requests failed during the upgrade: %v", len(failures), n, failures))
	}
	fmt.Printf("%d requests during the upgrade, none failed\n", n)
}

// ad sends one request on a new connection.
func (m *machine) ad() {
	if body := m.get("http://127.0.0.1:8080/fillbuffer?pub=1"); !strings.Contains(body, "seatbid") {
		panic("no ad: " + body)
	}
}

func (m *machine) get(url string) string {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	res, err := client.Get(url)
	must(err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must(err)
	if res.StatusCode != http.StatusOK {
		panic(fmt.Sprintf("%s: %s: %s", url, res.Status, body))
	}
	return string(body)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
