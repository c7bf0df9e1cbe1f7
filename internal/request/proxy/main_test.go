package proxy

import (
	"testing"

	"adbuffer/internal/test/testsupport"

	"go.uber.org/goleak"
)

// TestMain fails if the tests have left goroutines. It excepts two: each fasthttp server leaves one
// that sleeps for ten seconds, and all servers share one for the date.
func TestMain(m *testing.M) {
	testsupport.Main(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"), goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}
