package socket

import (
	"time"

	"golang.org/x/sys/unix"
)

// SinceInput returns how long ago the last bytes of the peer arrived at the kernel, to a few
// milliseconds. ok is false if that is unknown, as for a Unix socket.
func (c *Conn) SinceInput() (since time.Duration, ok bool) {
	if c.raw == nil {
		return 0, false
	}
	c.raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			since, ok = time.Duration(info.Last_data_recv)*time.Millisecond, true
		}
	})
	return since, ok
}
