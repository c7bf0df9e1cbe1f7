package app

import (
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/machine/cgroup"
	"adbuffer/internal/machine/metrics"
)

var (
	cpuDescs      metrics.Descs
	descThrottled = cpuDescs.New("adbuffer_cgroup_throttled_seconds_total", "Seconds for which the cgroup of adbuffer had no CPU because it had used up its limit. Absent if Linux does not say it.")
	descPressure  = cpuDescs.New("adbuffer_cpu_pressure_ratio", "Share of the last 10 seconds in which a task of the cgroup, or of the machine, waited for a CPU. Absent if Linux does not say it.")
)

// newCPUMetrics exports what Linux reports about the CPU. The metrics help to explain lag; adbuffer does not
// use them itself.
func newCPUMetrics() prometheus.Collector {
	group := cgroup.Own(os.DirFS("/"))
	return metrics.NewSource(cpuDescs, func(to metrics.Sink) {
		if seconds, ok := group.Throttled(); ok {
			to.FloatCounter(descThrottled, seconds)
		}
		if share, ok := group.Pressure(); ok {
			to.Gauge(descPressure, share)
		}
	})
}
