package fieldreports

import (
	"time"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/procstat"
)

// closeField asks for the connection to be closed behind the answer.
var closeField = load.Field{Name: "Connection", Value: "close"}

// cpuOf returns the CPU time of a process and its children.
func cpuOf(pid int) (time.Duration, error) {
	u, err := procstat.ReadTree(pid)
	return u.CPU(), err
}
