//go:build !race

package proxy_test

import (
	"crypto/tls"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

// mostParked is how many bytes of heap and stacks a parked client may hold, by its kind. The
// kernel's socket and the runtime's record of it (0.3 KB) are not included.
var mostParked = map[string]int{"cleartext": 1536, "TLS": 4608, "HTTP/2": 6144}

func TestParkedClientsHoldLittleMemory(t *testing.T) {
	testsupport.Long(t)
	const n = 400
	for name, kind := range parkedKinds {
		t.Run(name, func(t *testing.T) {
			m := newModeProxy(t, route.Single, parksMany(kind.change, time.Hour, unlogged), fewConns(bids("a", "{}")))

			var all [n]int
			hold := func(i int) { all[i] = detach(t, kind.connect(m)) }
			release := func() {
				for _, fd := range all {
					syscall.Close(fd)
				}
				m.await(0, openClients, "")
			}
			// The first clients leave memory behind that the next ones use again, such as stacks.
			for i := range n {
				hold(i)
			}
			m.awaitParked()
			release()
			hold(0)
			m.awaitParked()
			before := heldMemory()
			for i := range n - 1 {
				hold(i + 1)
			}
			m.awaitParked()
			m.await(n, openClients, "")
			each := (heldMemory() - before) / (n - 1)
			t.Logf("%s: %d bytes", name, each)
			testsupport.True(t, each <= mostParked[name], "a parked client holds %d bytes, want at most %d", each, mostParked[name])
			release()
		})
	}
}

// unlogged logs no requests, since the tests' log would keep them in memory.
func unlogged(o *proxy.Options, _ *route.Route) { o.Access.Enabled = false }

// detach keeps only the descriptor of a client's connection.
func detach(t *testing.T, c net.Conn) (fd int) {
	t.Helper()
	if over, ok := c.(*tls.Conn); ok {
		c = over.NetConn()
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	testsupport.NoError(t, err)
	raw.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) })
	testsupport.NoError(t, err)
	c.Close()
	return fd
}

// heldMemory returns the bytes of heap and stacks in use, without garbage and pools.
func heldMemory() int {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}
