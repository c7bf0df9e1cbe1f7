package dial

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout makes the kernel give conn up when data that it has sent stays
// unacknowledged for d; by default that takes it a quarter of an hour. A
// kernel that refuses loses nothing but that, so errors do not matter. It is
// set on open connections only, since it would cut a timeouts.connect above d.
func setUserTimeout(conn *net.TCPConn, d time.Duration) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
}

// bindWithoutPort makes the kernel choose the port of a socket with a source address when it
// connects, not when it is bound: one port then serves connections to several addresses. Older
// kernels refuse, and lose nothing but that.
func bindWithoutPort(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	})
}
