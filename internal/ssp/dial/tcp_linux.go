package dial

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout makes the kernel drop conn when sent data stays unacknowledged for d. The default
// is a quarter of an hour. If a kernel refuses, only this timeout is missing, so errors do not
// matter. It is set only on open connections, since it would shorten a timeouts.connect above d.
func setUserTimeout(conn *net.TCPConn, d time.Duration) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
}

// bindWithoutPort lets the kernel choose the port of a socket with a source address at connect, and
// not at bind. Then one port serves connections to several addresses. If an older kernel refuses,
// only this advantage is lost.
func bindWithoutPort(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	})
}
