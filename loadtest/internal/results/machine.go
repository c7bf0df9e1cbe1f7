package results

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
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

var modelName = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)

// ThisMachine describes this machine.
func ThisMachine() Machine {
	m := Machine{CPU: runtime.GOARCH, Cores: runtime.NumCPU(), Kernel: load.Sysctl("kernel/osrelease")}
	text, _ := os.ReadFile("/proc/cpuinfo") // some machines name no model
	if name := modelName.FindSubmatch(text); name != nil {
		m.CPU = string(name[1])
	}
	text, _ = os.ReadFile("/proc/meminfo")
	var kib int
	if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kib); err == nil {
		m.Memory = fmt.Sprintf("%d GiB", kib>>20)
	}
	return m
}

func (m Machine) String() string {
	return fmt.Sprintf("%d cores (%s), %s, Linux %s", m.Cores, m.CPU, m.Memory, m.Kernel)
}

// versionArgs are the arguments with which programs print their version.
var versionArgs = map[string][]string{
	"nginx": {"-v"}, "haproxy": {"-v"}, "caddy": {"version"}, "envoy": {"--version"}, "node": {"--version"},
	"wrk": {"--version"}, "h2load": {"--version"}, "go": {"version"},
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
