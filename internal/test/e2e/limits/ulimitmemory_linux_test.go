//go:build !race

package limits

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// addressSpace returns how many KiB of address space a process has taken.
func addressSpace(ab *e2e.Process) int {
	ab.T.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", ab.Cmd.Process.Pid))
	testsupport.NoError(ab.T, err)
	_, after, _ := strings.Cut(string(status), "VmSize:")
	n, err := strconv.Atoi(strings.Fields(after)[0])
	testsupport.NoError(ab.T, err)
	return n
}

// server.max_buffered_bytes must respect ulimit -v. Otherwise 600 uploads end adbuffer with Go's "out of memory".
func TestUploadsMakeRoomBeforeTheMemoryRunsOut(t *testing.T) {
	config := "server: {max_body_bytes: 2097152, max_buffered_bytes: 1073741824}\n" + e2e.Single(e2e.Healthy(t).URL())
	// The released binary has no C library, which reserves much address space for each thread.
	const noC = "ulimit -s 256; export MALLOC_ARENA_MAX=1; "
	idle := addressSpace(startWithin(t, noC+"ulimit -v unlimited", config))
	ab := startWithin(t, noC+fmt.Sprintf("ulimit -v %d", idle+600<<10), config)
	most := bytes.Repeat([]byte{' '}, 2<<20-1)
	for range 600 {
		c := ab.Dial()
		c.Send("POST /fillbuffer HTTP/1.1\r\nHost: adbuffer.test\r\nContent-Length: 2097152\r\n\r\n")
		(&net.Buffers{most}).WriteTo(c.Conn)
	}
	testsupport.MustTrue(t, !ab.HasEnded(), "adbuffer ended:\n%.2000s", ab.Log)
	ab.Get("/fillbuffer").WantFill("openx")
	if limit := ab.Metric("adbuffer_buffered_bytes_limit"); limit < 1<<20 || limit > 1<<28 {
		t.Errorf("adbuffer_buffered_bytes_limit is %v", limit)
	}
	wantWarning(ab, "server.max_buffered_bytes", "a quarter", "ulimit -v")
}
