package cgroup

import (
	"fmt"
	"testing"
	"testing/fstest"

	"adbuffer/internal/test/testsupport"
)

// known is all that a group says.
func known(g Group) string {
	throttled, throttledOK := g.Throttled()
	pressure, pressureOK := g.Pressure()
	cpus, parent := g.ParentCPUs()
	return fmt.Sprintf("%v %v, %v %v, %v %s", throttled, throttledOK, pressure, pressureOK, cpus, parent)
}

func TestWhatLinuxSaysOfTheCPU(t *testing.T) {
	const (
		statV2    = "usage_usec 5\nnr_throttled 2\nthrottled_usec 1500000\n"
		statV1    = "nr_periods 4\nthrottled_time 2500000000\n"
		pressured = "some avg10=12.50 avg60=1.00 avg300=0.00 total=7\nfull avg10=3.00\n"
	)
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no Linux": {nil, "0 false, 0 false, +Inf "},
		"version 2, a parent with a limit": {map[string]string{
			"proc/self/cgroup": "0::/kube/pod/box\n", "sys/fs/cgroup/cpu.stat": "usage_usec 1\n", "sys/fs/cgroup/kube/cpu.max": "max 100000\n",
			"sys/fs/cgroup/kube/pod/cpu.max": "150000 100000\n", "sys/fs/cgroup/kube/pod/box/cpu.max": "50000 100000\n",
			"sys/fs/cgroup/kube/pod/box/cpu.stat": statV2, "sys/fs/cgroup/kube/pod/box/cpu.pressure": pressured,
		}, "1.5 true, 0.125 true, 1.5 /sys/fs/cgroup/kube/pod"},
		"version 2, a container that sees its own group alone": {map[string]string{
			"proc/self/cgroup": "0::/../../far/away\n", "sys/fs/cgroup/cpu.stat": statV2, "sys/fs/cgroup/cpu.max": "50000 100000\n",
		}, "1.5 true, 0 false, +Inf "},
		"version 1 beside version 2": {map[string]string{
			"proc/self/cgroup": "4:memory:/c\n2:cpuacct,cpu:/a/b\n0::/\n", "sys/fs/cgroup/cpu/a/b/cpu.stat": statV1, "sys/fs/cgroup/cpu/c/cpu.stat": "throttled_time 1\n", "proc/pressure/cpu": pressured,
			"sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "300000\n", "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
		}, "2.5 true, 0.125 true, 3 /sys/fs/cgroup/cpu/a"},
		"other text than expected": {map[string]string{
			"proc/self/cgroup": "0::/\nx\n:\n", "sys/fs/cgroup/cpu.stat": "throttled_usec many\n", "sys/fs/cgroup/cpu.pressure": "some avg10=\n",
		}, "0 false, 0 false, +Inf "},
	} {
		files := fstest.MapFS{}
		for file, text := range c.files {
			files[file] = &fstest.MapFile{Data: []byte(text)}
		}
		testsupport.Equal(t, known(Own(files)), c.want, "%[2]s: %[1]q", name)
	}
}
