package app

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// Version is the release, set by the linker (-X adbuffer/internal/app.Version).
var Version = "dev"

// Commit is the commit that the binary was built from. The linker sets it (-X), or else Go's own
// stamp. "" means unknown.
var Commit string

// The linker sets only variables without an initial value, hence this function.
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
