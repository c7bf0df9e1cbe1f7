package socket

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// SinceInput returns how long ago the last bytes of the peer arrived at the kernel, to a few
// milliseconds. If that is unknown, as for a Unix socket, it returns the largest duration.
func (c *Conn) SinceInput() time.Duration {
	since := time.Duration(math.MaxInt64)
	if c.raw == nil {
		return since
	}
	c.raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			since = time.Duration(info.Last_data_recv) * time.Millisecond
		}
	})
	return since
}
