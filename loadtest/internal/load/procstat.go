package load

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// tick is the unit of CPU times in /proc: USER_HZ, which is 100 on every
// architecture that Go runs on.
const tick = 10 * time.Millisecond

// Usage is the resource use of a process.
type Usage struct {
	CPU   time.Duration // user and system time
	RSS   int64         // bytes in memory
	Files int           // open file descriptors
}

// Read returns the usage of a process.
func Read(pid int) (Usage, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return Usage{}, fmt.Errorf("process %d: %w", pid, err)
	}
	// /proc/PID/schedstat has nanoseconds, but only for the main thread, and a sum over all threads would
	// miss threads that have ended. So this reads the ticks of /proc/PID/stat.
	stat, statErr := p.Stat()
	status, statusErr := p.NewStatus()
	if err := errors.Join(statErr, statusErr); err != nil {
		return Usage{}, fmt.Errorf("process %d: %w", pid, err)
	}
	u := Usage{CPU: time.Duration(stat.UTime+stat.STime) * tick, RSS: int64(status.VmRSS)}
	u.Files, _ = p.FileDescriptorsLen() // 0 for another user's process, whose files are hidden
	return u, nil
}

// ReadTree returns the sum over a process and all its descendants, for servers with workers.
func ReadTree(pid int) (Usage, error) {
	sum, err := Read(pid)
	if err != nil {
		return sum, err
	}
	for _, child := range children(pid) {
		u, err := ReadTree(child)
		if err != nil {
			continue // the process has ended
		}
		sum.CPU += u.CPU
		sum.RSS += u.RSS
		sum.Files += u.Files
	}
	return sum, nil
}

func children(pid int) []int {
	var out []int
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, l := range lists {
		b, err := os.ReadFile(l)
		if err != nil {
			continue
		}
		for _, f := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				out = append(out, n)
			}
		}
	}
	return out
}

// cores holds the busy time and the total time of some cores, in seconds.
type cores struct{ busy, all float64 }

// readCores returns the times of the cores with these numbers since the machine started.
func readCores(numbers []int) (sum cores) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return sum
	}
	stat, err := fs.Stat()
	if err != nil {
		return sum
	}
	for _, n := range numbers {
		c := stat.CPU[int64(n)]
		busy := c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
		sum.busy += busy
		sum.all += busy + c.Idle + c.Iowait
	}
	return sum
}

func (c cores) busySince(before cores) float64 {
	if c.all == before.all {
		return 0
	}
	return (c.busy - before.busy) / (c.all - before.all)
}

// TimeWait returns the number of sockets in TIME_WAIT on this machine.
func TimeWait() int {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	stat, err := fs.NetSockstat()
	if err != nil {
		return 0
	}
	for _, p := range stat.Protocols {
		if p.TW != nil {
			return *p.TW
		}
	}
	return 0
}

// Sysctl returns a kernel setting, such as "net/ipv4/tcp_tw_reuse". It returns "" if the kernel has
// no such setting.
func Sysctl(name string) string {
	text, _ := os.ReadFile("/proc/sys/" + name)
	return strings.Join(strings.Fields(string(text)), " ")
}

// Waits is the time that each thread of a process has waited for a core.
type Waits map[int]time.Duration

// ReadWaits returns the waits of a process so far. Threads that have ended are not in it.
func ReadWaits(pid int) Waits {
	out := Waits{}
	threads, _ := procfs.AllThreads(pid) // none if the process has ended
	for _, t := range threads {
		if s, err := t.Schedstat(); err == nil { // the thread may have ended
			out[t.PID] = time.Duration(s.WaitingNanoseconds)
		}
	}
	return out
}

// Longest returns the longest time that a single thread has waited since before. Threads that are not in before are
// ignored. The waits are not added up, because a request waits for only one thread at a time.
func (w Waits) Longest(before Waits) (longest time.Duration) {
	for thread, waited := range w {
		if was, known := before[thread]; known {
			longest = max(longest, waited-was)
		}
	}
	return longest
}
