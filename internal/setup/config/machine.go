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
	addrs    []netip.Addr // the addresses of all network interfaces
	procs    int          // GOMAXPROCS
	cpus     float64      // the smallest CPU limit of the cgroup's parents
	cpusFrom string       // the parent with that limit; "" = no parent has a limit
}

func thisMachine() machine {
	var m machine
	// The Go runtime raises the soft limit to the hard limit at start, so this is the limit in force.
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

// readMemory sets Memory to the smallest of the memory of the machine, the limits of the cgroup and its
// parents, and the limit on the address space.
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

// resourceLimit returns a soft limit of the process, or math.MaxUint64 if there is none.
func resourceLimit(resource int) uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(resource, &limit) != nil {
		return math.MaxUint64
	}
	return limit.Cur
}

// startSpace is the address space that threads and a heap without bodies take soon after the process has
// read its configuration.
const startSpace = 192 << 20

// addressSpace returns how many bytes of address space the process takes without bodies: what the process
// had taken when it first read a configuration, plus startSpace. The Go runtime reserves much more address
// space than it uses.
var addressSpace = sync.OnceValue(func() uint64 {
	statm, _ := os.ReadFile("/proc/self/statm")
	pages, _, _ := bytes.Cut(statm, []byte(" "))
	n, _ := strconv.ParseUint(string(pages), 10, 64)
	return n*uint64(os.Getpagesize()) + startSpace
})
