package testsupport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// The ports of FreeAddr are below 32768. From there on, Linux chooses ports for connections and for
// listeners on port 0. Chromium refuses 10080.
const firstPort, endPort = 10100, 32768

// FreeAddr returns an address of loopback on which nothing listens. Its port is reserved until the
// test ends: see ReserveAddr.
func FreeAddr(t testing.TB) string {
	t.Helper()
	addr, release, err := ReserveAddr()
	NoError(t, err)
	t.Cleanup(release)
	return addr
}

// ReserveAddr returns an address of loopback on which nothing listens. Until release is called, it
// returns the port to no other caller, in this process or in another one on this machine.
func ReserveAddr() (addr string, release func(), err error) {
	for range 100 {
		port := firstPort + rand.IntN(endPort-firstPort)
		reserved, err := net.Listen("unix", reservation(port))
		if err != nil {
			continue // another caller has it
		}
		if l, err := net.Listen("tcp", fmt.Sprintf(":%d", port)); err == nil {
			l.Close()
			return fmt.Sprintf("127.0.0.1:%d", port), func() { reserved.Close() }, nil
		}
		reserved.Close()
	}
	return "", nil, fmt.Errorf("100 ports between %d and %d are in use", firstPort, endPort)
}

// reservation returns the name of the socket that reserves a port. The kernel frees an abstract
// name of Linux when its process ends.
func reservation(port int) string {
	name := fmt.Sprintf("adbuffer-test-port-%d", port)
	if runtime.GOOS == "linux" {
		return "@" + name
	}
	return filepath.Join(os.TempDir(), name)
}
