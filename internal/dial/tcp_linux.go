package dial

import (
	"net"
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
