package config

import (
	"bytes"
	"math"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"adbuffer/internal/machine/cgroup"
)

// machine holds the facts about this machine and this process that the warnings need.
type machine struct {
	Machine
	hostname string       // "" = unknown
	addrs    []netip.Addr // of its interfaces
	procs    int          // GOMAXPROCS
	cpus     float64      // that a parent of the process's cgroup allows
	cpusFrom string       // that parent; "" = none has a limit
}

func thisMachine() machine {
	var m machine
	// The Go runtime raises the soft limit to the hard one at start, so this is the service's limit.
	if files := resourceLimit(syscall.RLIMIT_NOFILE); files <= math.MaxInt32 {
		m.OpenFiles = int(files)
	}
	m.readMemory()
	m.procs = runtime.GOMAXPROCS(0)
	m.cpus, m.cpusFrom = cgroup.Own(os.DirFS("/")).ParentCPUs()
	m.hostname, _ = os.Hostname()
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			m.addrs = append(m.addrs, prefix.Addr().Unmap())
		}
	}
	return m
}

// readMemory finds the smallest limit: of the machine, of the cgroup and its parents, or of the
// address space.
func (m *Machine) readMemory() {
	add := func(limit uint64, from string) {
		if limit > 0 && limit <= math.MaxInt && (m.Memory == 0 || int(limit) < m.Memory) {
			m.Memory, m.MemoryFrom = int(limit), from
		}
	}
	if limit, err := memlimit.FromSystem(); err == nil {
		add(limit, "that the machine has")
	}
	if limit, err := memlimit.FromCgroup(); err == nil {
		add(limit, "that the cgroup allows")
	}
	if limit := resourceLimit(syscall.RLIMIT_AS); limit <= math.MaxInt {
		add(max(limit, addressSpace()+1)-addressSpace(), "that ulimit -v leaves")
	}
}

// resourceLimit returns a soft limit of the process, math.MaxUint64 for none.
func resourceLimit(resource int) uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(resource, &limit) != nil {
		return math.MaxUint64
	}
	return limit.Cur
}

// startSpace is the address space that the process takes soon after it has read its configuration: by
// threads, and by a heap without bodies.
const startSpace = 192 << 20

// addressSpace returns how many bytes of address space the process takes without bodies: what it had
// when it first read a configuration, and startSpace. The Go runtime reserves much more than it uses.
var addressSpace = sync.OnceValue(func() uint64 {
	statm, _ := os.ReadFile("/proc/self/statm")
	pages, _, _ := bytes.Cut(statm, []byte(" "))
	n, _ := strconv.ParseUint(string(pages), 10, 64)
	return n*uint64(os.Getpagesize()) + startSpace
})
