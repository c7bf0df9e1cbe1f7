package dial

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// Errors of adbuffer's own machine must not count as connect_failed, which would blame the SSP.
func TestErrorsOfThisMachineAreLocal(t *testing.T) {
	p := listen(t, waitForEnd)
	for errno, names := range map[syscall.Errno]string{
		syscall.EMFILE: "ulimit -n", syscall.ENFILE: "fs.file-max", syscall.EADDRNOTAVAIL: "source_addresses",
		syscall.ENOBUFS: "memory", syscall.ENOMEM: "memory",
	} {
		d := newDialer(t, p.options(t, "http", "ssp.test"))
		d.tcp.Control = func(string, string, syscall.RawConn) error { return errno }
		_, err := d.Dial(t.Context(), true, p.addr("ssp.test"))
		e := exchange.AsError(err)
		testsupport.True(t, e.Outcome == exchange.LocalError && e.Progress == exchange.NotSent && strings.Contains(e.Detail, names), "%v: %v", errno, err)
		o := p.options(t, "http", "ssp.test")
		o.Lookup = func(context.Context, string, string) ([]netip.Addr, error) { // as Go's resolver returns it
			return nil, &net.DNSError{Err: "dial udp 127.0.0.53:53: socket: " + errno.Error(), Name: "ssp.test"}
		}
		_, err = newDialer(t, o).Addresses(t.Context())
		e = exchange.AsError(err)
		testsupport.True(t, e.Outcome == exchange.LocalError && strings.Contains(e.Detail, names), "%v in a look-up: %v", errno, err)
	}
}

// A dial that finds no file for its socket uses the file that FreeFile frees.
func TestADialUsesAFileThatBecomesFree(t *testing.T) {
	p := listen(t, waitForEnd)
	calls, full := 0, true
	o := p.options(t, "http", "ssp.test")
	o.FreeFile = func(err error) bool {
		calls++
		testsupport.ErrorIs(t, err, syscall.EMFILE, "FreeFile gets %v")
		full = false
		return true
	}
	d := newDialer(t, o)
	d.tcp.Control = func(string, string, syscall.RawConn) error {
		if full {
			return syscall.EMFILE
		}
		return nil
	}
	p.dial(t, d, true)
	p.dial(t, d, true)
	testsupport.Equal(t, calls, 1, "FreeFile was called %d times")
}
