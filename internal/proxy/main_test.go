package proxy

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails if the tests have left goroutines. It excepts two: each fasthttp server leaves one
// that sleeps for ten seconds, and all servers share one for the date.
func TestMain(m *testing.M) {
	code := m.Run()
	err := goleak.Find(goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"), goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
	if err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
