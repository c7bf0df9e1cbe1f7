//go:build !linux

package testsupport

import "time"

// ThreadTime returns how long f takes.
func ThreadTime(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}
