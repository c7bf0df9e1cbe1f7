package fieldreports

import (
	"time"

	"adbuffer/loadtest/internal/procstat"
	"adbuffer/loadtest/internal/wire"
)

// closeField asks for the connection to be closed behind the answer.
var closeField = wire.Field{Name: "Connection", Value: "close"}

// cpuOf returns the CPU time of a process and its children.
func cpuOf(pid int) (time.Duration, error) {
	u, err := procstat.ReadTree(pid)
	return u.CPU(), err
}
