// Package cgroup reads the CPU limits and the CPU shortage of the process's control group, of version 1 or 2, from
// Linux's files. On another system, or if a file is missing, the methods report that they know nothing.
package cgroup

import (
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// Group is the control group of the process. The zero value knows nothing.
type Group struct {
	files fs.FS
	root  string // mount point of the group's hierarchy
	dir   string // directory of the group: root, or below root
	v1    bool
}

// The usual mount points of the hierarchies, relative to the root of the file system.
const (
	mountV2 = "sys/fs/cgroup"
	mountV1 = "sys/fs/cgroup/cpu"
)

// Own finds the group of the process in the machine's files, which are os.DirFS("/") outside of tests.
func Own(files fs.FS) Group {
	text, err := fs.ReadFile(files, "proc/self/cgroup")
	if err != nil {
		return Group{}
	}
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, dir, _ := strings.Cut(rest, ":")
		g := Group{files: files, root: mountV2, v1: controllers != ""}
		if g.v1 {
			g.root = mountV1
		}
		if controllers != "" && !strings.Contains(","+controllers+",", ",cpu,") {
			continue
		}
		// In a container the path may be the host's, while only the container's group is mounted.
		for _, g.dir = range []string{path.Join(g.root, dir), g.root} {
			if _, err := fs.Stat(files, path.Join(g.dir, "cpu.stat")); err == nil {
				return g
			}
		}
	}
	return Group{files: files}
}

// Throttled returns the total time, in seconds, for which the group's limit kept it from running. ok is false if the
// time is unknown.
func (g Group) Throttled() (seconds float64, ok bool) {
	if g.v1 {
		ns, ok := g.value(g.dir, "cpu.stat", "throttled_time ")
		return ns / 1e9, ok
	}
	us, ok := g.value(g.dir, "cpu.stat", "throttled_usec ")
	return us / 1e6, ok
}

// Pressure returns the share of the last 10 seconds in which a task of the group, or of the machine, waited for a
// CPU. ok is false if the share is unknown. https://docs.kernel.org/accounting/psi.html
func (g Group) Pressure() (share float64, ok bool) {
	percent, ok := g.value(g.dir, "cpu.pressure", "some avg10=")
	if !ok {
		percent, ok = g.value("proc/pressure", "cpu", "some avg10=")
	}
	return percent / 100, ok
}

// ParentCPUs returns the lowest CPU limit among the group's parents, in CPUs, and the directory of the parent that
// sets it. The directory is "" if no parent has a limit, or no parent is visible.
func (g Group) ParentCPUs() (n float64, parent string) {
	n = math.Inf(1)
	for dir := g.dir; dir != g.root; {
		dir = path.Dir(dir)
		if cpus, ok := g.limit(dir); ok && cpus < n {
			n, parent = cpus, "/"+dir
		}
	}
	return n, parent
}

// limit returns the CPU limit, in CPUs, that the group in dir sets itself, without its parents' limits.
func (g Group) limit(dir string) (n float64, ok bool) {
	var quota, period float64
	if g.v1 {
		quota, _ = g.value(dir, "cpu.cfs_quota_us", "") // -1 for no limit
		period, _ = g.value(dir, "cpu.cfs_period_us", "")
	} else {
		text, _ := fs.ReadFile(g.files, path.Join(dir, "cpu.max"))
		quotaText, periodText, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		quota, _ = strconv.ParseFloat(quotaText, 64) // "max" for no limit
		period, _ = strconv.ParseFloat(periodText, 64)
	}
	return quota / period, quota > 0 && period > 0
}

// value returns the number that follows prefix, from the first line of the file that begins with prefix.
func (g Group) value(dir, file, prefix string) (n float64, ok bool) {
	if g.files == nil || dir == "" {
		return 0, false
	}
	text, err := fs.ReadFile(g.files, path.Join(dir, file))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(strings.TrimSpace(line), prefix); found {
			number, _, _ := strings.Cut(rest, " ")
			n, err := strconv.ParseFloat(number, 64)
			return n, err == nil
		}
	}
	return 0, false
}
