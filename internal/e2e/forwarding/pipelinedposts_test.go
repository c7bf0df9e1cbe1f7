package forwarding

import (
	"bufio"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"adbuffer/internal/e2e"
)

// Before, POSTs that shared a pipelined connection were sent twice. Requests behind a response of
// HTTP/1.0, or behind one without a length, counted as not processed.
func TestPipelinedPostBehindTheLastResponseIsNotSentTwice(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		last  string
		posts int64 // POSTs that the SSP receives, of the two that clients send
	}{
		"http/1.0":         {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 2},
		"until close":      {"HTTP/1.1 200 OK\r\n\r\nok", 2},
		"connection close": {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, posts := startLastOfTwo(t, row.last)
			ab := e2e.Start(t, e2e.Single(url, "protocol: http1-pipelined", "pool: {max_conns: 1, pipeline_methods: all}"))
			ab.Get("/fillbuffer").WantFill("openx") // from now on the connection pipelines
			var wg sync.WaitGroup
			for range 2 {
				c := ab.Dial()
				wg.Go(func() { c.Post("/fillbuffer", `{"id":"1"}`) })
			}
			wg.Wait()
			if n := posts.Load(); n != row.posts {
				t.Errorf("the SSP received %d POSTs, want %d", n, row.posts)
			}
		})
	}
}

// startLastOfTwo runs an SSP. On its first connection it responds to one request, then
// reads two, sends last, and closes. On other connections it responds to all. It counts all
// requests but the first.
func startLastOfTwo(t *testing.T, last string) (url string, posts *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	posts = new(atomic.Int64)
	go func() {
		for first := true; ; first = false {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for n := 1; e2e.ReadRequest(r) == nil; n++ {
					if n > 1 || !first {
						posts.Add(1)
					}
					switch {
					case n == 1 || !first:
						io.WriteString(c, e2e.ScriptedResponse("ok")) //nolint:errcheck // the next read fails, too
					case n == 3:
						io.WriteString(c, last) //nolint:errcheck // the connection ends anyhow
						return
					}
				}
			}()
		}
	}()
	return "http://" + l.Addr().String() + "/bid", posts
}
