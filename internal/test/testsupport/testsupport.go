// Package testsupport holds helpers for the tests of many packages that do not depend on adbuffer:
// Eventually and Patience, free addresses, the log of a process, a simulated socket, and the cost of
// a hostile input. It also runs servers of other projects for the length of a test. Package e2e adds
// adbuffer's own process. Module internal/test/e2e/browser runs
// Chromium, so that other tests need not link its driver.
package testsupport

import (
	"net"
	"testing"
	"time"
)

// Port returns the port of an address host:port.
func Port(t testing.TB, addr string) string {
	t.Helper()
	_, p, err := net.SplitHostPort(addr)
	NoError(t, err)
	return p
}

// Patience bounds every wait of a test; it passes only when something is broken.
const Patience = 60 * time.Second

// Eventually waits until ok returns true, for Patience at most. The pauses between its calls grow from
// 5 ms to 50 ms, since ok may be costly.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	end, pause := time.Now().Add(Patience), 5*time.Millisecond
	for !ok() {
		MustTrue(t, time.Now().Before(end), "not within %v: %s", Patience, what)
		time.Sleep(pause)
		pause = min(pause+pause/4, 50*time.Millisecond)
	}
}

// Tail returns the last n bytes of s.
func Tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}
