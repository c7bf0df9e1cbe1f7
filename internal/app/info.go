package app

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Version is the release, set by the linker (-X adbuffer/internal/app.Version).
var Version = "dev"

// Commit is the commit that the binary was built from, as the linker (-X) or,
// where it was not told, Go's own stamp says; empty where neither does.
var Commit string

// The linker sets only variables without an initial value: hence not there.
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

// info exports what runs: build and configuration.
type info struct {
	hash   atomic.Pointer[string]
	loaded atomic.Int64 // unix seconds of the last good load
	good   atomic.Bool  // the last load was good

	retiring *atomic.Int64 // pools that drain after a reload
}

func newInfo(hash string, at time.Time, retiring *atomic.Int64) *info {
	i := &info{retiring: retiring}
	i.load(hash, at)
	return i
}

func (i *info) load(hash string, at time.Time) {
	i.hash.Store(&hash)
	i.loaded.Store(at.Unix())
	i.good.Store(true)
}

var (
	descBuild  = prometheus.NewDesc("adbuffer_build_info", "1, with what the binary was built from.", []string{"version", "commit", "go"}, nil)
	descConfig = prometheus.NewDesc("adbuffer_config_info", "1, with a hash of the effective configuration.", []string{"hash"}, nil)
	descGood   = prometheus.NewDesc("adbuffer_config_last_reload_successful", "1 if the configuration was good when it was last read, 0 if not.", nil, nil)
	descOld    = prometheus.NewDesc("adbuffer_pools_draining", "Pools that a reload replaced or took away, and whose last requests have not ended yet.", nil, nil)
	descLoaded = prometheus.NewDesc("adbuffer_config_last_reload_timestamp_seconds", "When the configuration in force was read, in seconds since 1970.", nil, nil)
)

// Describe implements prometheus.Collector.
func (i *info) Describe(ch chan<- *prometheus.Desc) {
	ch <- descBuild
	ch <- descConfig
	ch <- descGood
	ch <- descLoaded
	ch <- descOld
}

// Collect implements prometheus.Collector.
func (i *info) Collect(ch chan<- prometheus.Metric) {
	good := 0.0
	if i.good.Load() {
		good = 1
	}
	ch <- prometheus.MustNewConstMetric(descBuild, prometheus.GaugeValue, 1, Version, Commit, runtime.Version())
	ch <- prometheus.MustNewConstMetric(descConfig, prometheus.GaugeValue, 1, *i.hash.Load())
	ch <- prometheus.MustNewConstMetric(descGood, prometheus.GaugeValue, good)
	ch <- prometheus.MustNewConstMetric(descLoaded, prometheus.GaugeValue, float64(i.loaded.Load()))
	ch <- prometheus.MustNewConstMetric(descOld, prometheus.GaugeValue, float64(i.retiring.Load()))
}
