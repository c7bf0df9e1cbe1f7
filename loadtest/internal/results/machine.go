package results

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"adbuffer/loadtest/internal/load"
)

// Machine describes the machine of a measurement.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory string `json:"memory"`
	Kernel string `json:"kernel"`
}

// ThisMachine describes this machine.
func ThisMachine() Machine {
	m := Machine{CPU: runtime.GOARCH, Cores: runtime.NumCPU(), Kernel: load.Sysctl("kernel/osrelease")}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		if fields := strings.Fields(string(b)); len(fields) > 1 {
			kb, _ := strconv.Atoi(fields[1])
			m.Memory = strconv.Itoa(kb>>20) + " GiB"
		}
	}
	return m
}

func (m Machine) String() string {
	return strconv.Itoa(m.Cores) + " cores (" + m.CPU + "), " + m.Memory + ", Linux " + m.Kernel
}

// versionArgs are the arguments with which programs print their version.
var versionArgs = map[string][]string{
	"nginx": {"-v"}, "haproxy": {"-v"}, "caddy": {"version"}, "envoy": {"--version"}, "node": {"--version"},
	"wrk": {"--version"}, "ab": {"-V"}, "h2load": {"--version"}, "curl": {"--version"}, "go": {"version"},
}

var versionNumber = regexp.MustCompile(`\d+\.\d+(\.\d+)*`)

// Version runs a program to get its version. It returns the name and the version.
func Version(name, path string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	// Some programs print their version and exit with an error.
	out, _ := exec.CommandContext(ctx, path, versionArgs[name]...).CombinedOutput()
	v := versionNumber.Find(out)
	if v == nil {
		return name + " of unknown version"
	}
	return name + " " + string(v)
}
