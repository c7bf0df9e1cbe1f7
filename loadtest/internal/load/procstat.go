package load

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc: USER_HZ, which is 100 on every
// architecture that Go runs on.
const tick = 10 * time.Millisecond

// Usage is what a process has used so far.
type Usage struct {
	User, System time.Duration
	RSS          int64 // bytes in memory now
	PeakRSS      int64
	Files        int // open file descriptors
	Threads      int
}

// CPU returns user and system time.
func (u Usage) CPU() time.Duration { return u.User + u.System }

// Read returns the usage of a process.
func Read(pid int) (Usage, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Usage{}, fmt.Errorf("process %d: %w", pid, err)
	}
	// The command may hold anything, so look behind its last parenthesis.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return Usage{}, fmt.Errorf("process %d: %d fields in its stat", pid, len(fields))
	}
	u := Usage{User: ticks(fields[11]), System: ticks(fields[12])}
	u.Threads, _ = strconv.Atoi(fields[17])
	// /proc/PID/schedstat has nanoseconds, of the main thread only; the sum over
	// the threads misses those that have ended, so stat's ticks stand.
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return Usage{}, fmt.Errorf("process %d: %w", pid, err)
	}
	u.RSS, u.PeakRSS = kilobytes(status, "VmRSS:"), kilobytes(status, "VmHWM:")
	if files, err := os.ReadDir(filepath.Join(dir, "fd")); err == nil {
		u.Files = len(files)
	}
	return u, nil
}

// ReadTree adds up the usage of a process and of all its descendants, as of a
// server with workers. Peaks add up too, though they may not have been at once.
func ReadTree(pid int) (Usage, error) {
	sum, err := Read(pid)
	if err != nil {
		return sum, err
	}
	for _, child := range children(pid) {
		u, err := ReadTree(child)
		if err != nil {
			continue // it has ended meanwhile
		}
		sum.User += u.User
		sum.System += u.System
		sum.RSS += u.RSS
		sum.PeakRSS += u.PeakRSS
		sum.Files += u.Files
		sum.Threads += u.Threads
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

func ticks(s string) time.Duration {
	n, _ := strconv.ParseInt(s, 10, 64)
	return time.Duration(n) * tick
}

func kilobytes(status []byte, key string) int64 {
	i := bytes.Index(status, []byte(key))
	if i < 0 {
		return 0
	}
	fields := strings.Fields(string(status[i+len(key) : min(i+len(key)+64, len(status))]))
	if len(fields) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(fields[0], 10, 64)
	return n << 10
}

// cores is the times of every core, in ticks.
type cores map[int]struct{ busy, all int64 }

// readCores returns the times of the cores since the machine started.
func readCores() cores {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil
	}
	out := cores{}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) < 9 || !strings.HasPrefix(fields[0], "cpu") || fields[0] == "cpu" {
			continue
		}
		n, err := strconv.Atoi(fields[0][3:])
		if err != nil {
			continue
		}
		var all, idle int64
		for i, f := range fields[1:9] { // user nice system idle iowait irq softirq steal
			v, _ := strconv.ParseInt(f, 10, 64)
			all += v
			if i == 3 || i == 4 {
				idle += v
			}
		}
		out[n] = struct{ busy, all int64 }{all - idle, all}
	}
	return out
}

// BusySince returns the share of their time that these cores together were busy
// since before. Nil cores are all.
func (c cores) BusySince(before cores, cores []int) float64 {
	var busy, all int64
	for n, now := range c {
		if cores != nil && !slices.Contains(cores, n) {
			continue
		}
		busy += now.busy - before[n].busy
		all += now.all - before[n].all
	}
	if all == 0 {
		return 0
	}
	return float64(busy) / float64(all)
}

// TimeWait returns how many sockets of the machine are in TIME_WAIT.
func TimeWait() int {
	b, err := os.ReadFile("/proc/net/sockstat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	for i, f := range fields {
		if f == "tw" && i+1 < len(fields) {
			n, _ := strconv.Atoi(fields[i+1])
			return n
		}
	}
	return 0
}

// Sysctl returns a setting of the kernel ("net/ipv4/tcp_tw_reuse"), "" if there
// is none of that name.
func Sysctl(name string) string {
	b, err := os.ReadFile(filepath.Join("/proc/sys", name))
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(b)), " ")
}

// Waits is for how long each thread of a process has been ready to run and has waited for a
// core.
type Waits map[string]time.Duration

// ReadWaits returns the waits of a process so far. Threads that have ended do not count.
func ReadWaits(pid int) Waits {
	out := Waits{}
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, t := range threads {
		b, err := os.ReadFile(t)
		if err != nil {
			continue // it has ended meanwhile
		}
		if f := strings.Fields(string(b)); len(f) > 1 {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			out[t] = time.Duration(n)
		}
	}
	return out
}

// Longest returns the longest wait of one thread since before. A request waits for no more
// than one thread of a process at a time.
func (w Waits) Longest(before Waits) (most time.Duration) {
	for thread, waited := range w {
		if was, known := before[thread]; known {
			most = max(most, waited-was)
		}
	}
	return most
}
