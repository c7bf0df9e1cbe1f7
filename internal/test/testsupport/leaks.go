package testsupport

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main is TestMain of a package. It also fails if goroutines are left when all tests have ended,
// unless known excepts them.
func Main(m *testing.M, known ...goleak.Option) { os.Exit(Run(m, known...)) }

// Run is Main without its end: it returns the exit status.
func Run(m *testing.M, known ...goleak.Option) int {
	code := m.Run()
	if err := Leaks(known...); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Leaks returns an error that shows the goroutines that are left, unless known excepts them. It
// waits for Patience until they have ended. goleak waits for half a second, which is too short for a
// slow machine.
func Leaks(known ...goleak.Option) error {
	for end := time.Now().Add(Patience); ; {
		if err := goleak.Find(known...); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// Goroutines counts the goroutines that run a function, such as "pool.(*Pool).janitor".
func Goroutines(function string) int {
	for size := 1 << 20; ; size *= 2 {
		b := make([]byte, size)
		if n := runtime.Stack(b, true); n < size {
			return strings.Count(string(b[:n]), function+"(")
		}
	}
}
