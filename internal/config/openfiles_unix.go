//go:build unix

package config

import (
	"math"
	"syscall"
)

// openFilesLimit is how many files this process may have open (ulimit -n). 0 means unknown or no
// limit. The Go runtime raises the soft limit to the hard one at start, so this is also the
// service's limit.
func openFilesLimit() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > math.MaxInt32 {
		return 0
	}
	return int(limit.Cur)
}
