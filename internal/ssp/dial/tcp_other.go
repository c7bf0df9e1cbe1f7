//go:build !linux

package dial

import (
	"net"
	"syscall"
	"time"
)

// setUserTimeout does nothing on developers' machines: adbuffer runs on Linux.
func setUserTimeout(*net.TCPConn, time.Duration) {}

// bindWithoutPort does nothing on developers' machines.
func bindWithoutPort(string, string, syscall.RawConn) error { return nil }
