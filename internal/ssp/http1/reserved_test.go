package http1

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// claims are responses of n bytes that claim the largest allowed size.
var claims = map[string]func(r *rand.Rand, n int) string{
	"length": func(_ *rand.Rand, n int) string {
		return "HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n" + strings.Repeat("x", n)
	},
	"chunk": func(_ *rand.Rand, n int) string {
		return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100000\r\n" + strings.Repeat("x", n)
	},
	"small chunks": func(r *rand.Rand, n int) string {
		var b strings.Builder
		b.WriteString("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for b.Len() < n {
			size := 1 + r.IntN(40)
			fmt.Fprintf(&b, "%x\r\n%s\r\n", size, strings.Repeat("x", size))
		}
		return b.String() + "80000\r\nx"
	},
	"until close": func(_ *rand.Rand, n int) string { return "HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", n) },
	"fields": func(_ *rand.Rand, n int) string {
		return "HTTP/1.1 200 OK\r\n" + strings.Repeat("a: b\r\n", min(n/6, 250)) + "Content-Length: 1048576\r\n\r\n" + strings.Repeat("x", n)
	},
}

// An SSP may claim any size, and its responses may arrive in any pieces. At each step a connection
// has reserved at most the bytes that arrived. Its exchanges hold at most twice as much memory,
// plus 4 KB each.
func TestBytesReservedFollowTheBytesThatArrived(t *testing.T) {
	for _, k := range kinds {
		for name, claim := range claims {
			testsupport.RunBubble(t, fmt.Sprint(name, "/", k), func(t *testing.T) {
				r := rand.New(rand.NewPCG(11, 3))
				for range 10 {
					reserveAsItComes(t, k, claim(r, 1+r.IntN(1<<uint(r.IntN(19)))), r)
				}
			})
		}
	}
}

func reserveAsItComes(t *testing.T, k kind, text string, r *rand.Rand) {
	opts := &Options{MaxResponseBytes: 1 << 20, MaxResponseHeaderBytes: 16 << 10, Linger: 10 * time.Second, Depth: 4}
	m := newSim(t, k, opts)
	defer m.s.Release()
	share, all := exchange.NewBudget(1<<30), exchange.NewBudget(1<<30)
	use := func(ex *exchange.Exchange) {
		ex.Share, ex.Budget = share, all
		ex.Response.Body, ex.Response.Fields = nil, nil // exclude the memory of other tests
	}
	came := 0
	var calls []*call
	if k == pipelined { // whole responses come first, so that several are held at once
		first := m.begin(time.Minute, use)
		calls = append(calls, first)
		for range 2 {
			calls = append(calls, m.begin(time.Minute, use))
		}
		for range calls {
			m.s.Take()
			body := strings.Repeat("y", r.IntN(20000))
			front := "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
			m.send(front)
			came += len(front)
		}
	}
	c := m.begin(time.Second, use)
	calls = append(calls, c)
	m.s.Take()
	check := func() {
		t.Helper()
		used := share.Used()
		testsupport.MustTrue(t, used == all.Used() && used <= int64(came), "%d bytes of the share and %d of all are reserved, %d have arrived", used, all.Used(), came)
		memory := 0
		for _, c := range calls {
			memory += cap(c.ex.Response.Body) + cap(c.ex.Response.Fields)
		}
		testsupport.MustTrue(t, memory <= 2*came+len(calls)<<12, "%d bytes of memory, %d have arrived", memory, came)
	}
	for rest := text; rest != ""; {
		n := min(len(rest), 1+r.IntN(1<<uint(r.IntN(17))))
		m.send(rest[:n])
		came, rest = came+n, rest[n:]
		check()
	}
	used := share.Used()
	testsupport.MustTrue(t, used >= int64(came)/2-int64(len(text)-strings.Count(text, "x"))-200, "%d bytes are reserved, %d have arrived: the test checks nothing", used, came)
	// The caller returns, and its memory is released, whatever bytes arrive later.
	time.Sleep(time.Second)
	synctest.Wait()
	testsupport.MustTrue(t, c.err == exchange.ErrDeadline, "error %v, want %v", c.err, exchange.ErrDeadline)
	for _, c := range calls {
		c.ex.ReleaseBody()
	}
	m.send(strings.Repeat("x", 100<<10))
	testsupport.MustTrue(t, share.Used() == 0 && all.Used() == 0, "%d bytes of the share and %d of all stay reserved", share.Used(), all.Used())
	m.close()
}
