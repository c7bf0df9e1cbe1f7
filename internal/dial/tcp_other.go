//go:build !linux

package dial

import (
	"net"
	"time"
)

// setUserTimeout does nothing on developers' machines: adbuffer runs on Linux.
func setUserTimeout(*net.TCPConn, time.Duration) {}
