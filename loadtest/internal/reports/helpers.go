package reports

import (
	"time"

	"adbuffer/loadtest/internal/load"
)

// closeField asks for the connection to be closed behind the response.
var closeField = load.Field{Name: "Connection", Value: "close"}

// cpuOf returns the CPU time of a process and its children.
func cpuOf(pid int) (time.Duration, error) {
	u, err := load.ReadTree(pid)
	return u.CPU(), err
}
