package dial

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout makes the kernel drop conn when sent data stays unacknowledged for d. The default is a quarter of an
// hour. Errors are ignored, since the connection works without the option. It is set only on open connections: while
// connecting, it would shorten a timeouts.connect above d.
func setUserTimeout(conn *net.TCPConn, d time.Duration) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
}

// bindWithoutPort makes the kernel choose the port of a socket with a source address when it connects, and not when
// it binds. So one port can serve connections to several addresses. Errors are ignored, since older kernels lack the
// option.
func bindWithoutPort(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	})
}
