package proxy

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain looks for what the tests have left running. fasthttp's servers leave a
// goroutine each that sleeps for ten seconds, and one for the date for good.
func TestMain(m *testing.M) {
	code := m.Run()
	err := goleak.Find(goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"), goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
	if err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
