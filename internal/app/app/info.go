package app

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/machine/metrics"
)

// Version is the release, set by the linker (-X adbuffer/internal/app/app.Version).
var Version = "dev"

// Commit is the commit from which the binary was built, set by the linker (-X) or taken from Go's build
// information; "" = unknown.
var Commit string

// init sets Commit, because the linker can set only variables without an initializer.
func init() {
	info, ok := debug.ReadBuildInfo()
	if Commit != "" || !ok {
		return
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			Commit = s.Value
		}
	}
}

// newBuildInfo exports the version, the commit and the Go version of the binary.
func newBuildInfo() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "adbuffer_build_info", Help: "1, with the version, the commit and the Go version of the binary.",
		ConstLabels: prometheus.Labels{"version": Version, "revision": Commit, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}

var (
	memoryDescs     metrics.Descs
	descMemoryLimit = memoryDescs.New("adbuffer_memory_limit_bytes", "Memory that the process may take: the smallest limit of the machine, the cgroup and ulimit -v. Compare it with process_resident_memory_bytes.")
)

// collectMemory exports the limit on memory, if it is known.
func (a *App) collectMemory(to metrics.Sink) {
	if limit := a.versions.Current().Config.Machine.Memory; limit > 0 {
		to.Gauge(descMemoryLimit, float64(limit))
	}
}
