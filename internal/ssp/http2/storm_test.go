package http2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// moody responds late, partly, or not at all, as the target demands.
func moody(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path[1] {
	case 'l':
		select {
		case <-time.After(3 * time.Millisecond):
		case <-r.Context().Done():
			return
		}
	case 'p':
		io.WriteString(w, "part")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case 'n':
		panic(http.ErrAbortHandler)
	case 'e': // without reading the body
		io.WriteString(w, r.URL.Path)
		return
	}
	echo(w, r)
}

func TestStorm(t *testing.T) {
	s := tlsServer(t, http.HandlerFunc(moody))
	conn, o := open(t, dialTLS(t, s.Listener.Addr().String()), with(func(o *Options) { o.MaxStreams = 64 }))
	budget := exchange.NewBudget(1 << 30)
	const callers = 24
	each := 30
	if *full {
		each = 500
	}
	var wg sync.WaitGroup
	var responded, abandoned, refused atomic.Int64
	for i := range callers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 9))
			for j := range each {
				kind := "aaaaalpne"[random.IntN(9)]
				r := get(fmt.Sprintf("/%c/%d/%d", kind, i, j))
				want := r.target
				if random.IntN(3) == 0 {
					r.method, r.body = exchange.POST, strings.Repeat(fmt.Sprint(i, " "), 1+random.IntN(50000))
					if kind != 'e' {
						want = r.body
					}
				}
				r.budget, r.timeout = budget, time.Minute
				if random.IntN(3) == 0 {
					r.timeout = time.Duration(random.IntN(3000)) * time.Microsecond
				}
				if random.IntN(3) == 0 {
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(3000))*time.Microsecond)
					defer cancel()
					r.ctx = ctx
				}
				switch res := r.do(conn); {
				case res.err == nil && res.body == want:
					responded.Add(1)
				case res.err == nil:
					t.Errorf("%s got %.40q", r.target, res.body)
				case errors.Is(res.err, exchange.ErrDeadline), errors.Is(res.err, exchange.ErrCancelled):
					abandoned.Add(1)
				case errors.Is(res.err, errNoStream): // abandoned exchanges hold their places for a while
					refused.Add(1)
				case kind != 'p' && kind != 'n' && !errors.Is(res.err, exchange.ErrDeadlineNotSent):
					t.Errorf("%s: %v", r.target, res.err)
				}
			}
		})
	}
	wg.Wait()
	testsupport.Eventually(t, "all places are freed", func() bool { return o.freed.Load() == int64(callers*each) })
	testsupport.Equal(t, budget.Used(), 0, "%d bytes stay reserved")
	testsupport.Equal(t, conn.CloseReason(), exchange.NotClosed, "the connection was closed: %v")
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if conn.streams.active != 0 || conn.uploads.n != 0 || conn.resets.pending() != 0 {
		t.Errorf("%d streams, %d uploads, %d resets are left", conn.streams.active, conn.uploads.n, conn.resets.pending())
	}
	t.Logf("%d with a response, %d abandoned, %d refused", responded.Load(), abandoned.Load(), refused.Load())
}
