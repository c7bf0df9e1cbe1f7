package http2

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"adbuffer/internal/upstream"
)

// fleet is a minimal pool for connections of this package. It lends their places, and sends
// unprocessed requests again.
type fleet struct {
	t    *testing.T
	addr string
	opts Options

	mu     sync.Mutex
	conns  []*Conn
	opened int
	again  int // exchanges that were sent again
}

// take returns a connection that takes requests, a new one where fewer than
// three are open.
func (f *fleet) take(i int) *Conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	open := f.conns[:0]
	for _, c := range f.conns {
		if c.CloseReason() == upstream.NotClosed {
			open = append(open, c)
		}
	}
	if f.conns = open; len(open) < 3 {
		c, err := tlsTo(f.addr)
		if err != nil {
			f.t.Error(err)
			return nil
		}
		conn := New(c, newOwner(), f.opts)
		f.conns = append(f.conns, conn)
		f.opened++
		return conn
	}
	return open[i%len(open)]
}

func (f *fleet) do(i int, r request) result {
	for range 20 {
		conn := f.take(i)
		if conn == nil {
			break
		}
		res := r.do(conn)
		if res.err == nil || upstream.AsError(res.err).Progress == upstream.MaybeProcessed {
			return res
		}
		f.mu.Lock()
		f.again++
		f.mu.Unlock()
	}
	return result{err: errors.New("sent 20 times without success")}
}

func (f *fleet) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		c.Close(upstream.ClosedDrain)
	}
}

func TestNginxThatClosesAfter1000RequestsCostsNoRequest(t *testing.T) {
	addr := startNginx(t, `
		keepalive_requests 1000;
		location / { add_header X-Target $request_uri; add_header X-Length $content_length; return 200 "response to $request_uri"; }`)
	f := &fleet{t: t, addr: addr, opts: testOptions()}
	defer f.close()
	const callers, each = 40, 500
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := range each {
				r := get(fmt.Sprintf("/%d/%d", i, j))
				if j%4 == 3 {
					r.method, r.body = upstream.POST, strings.Repeat("b", 100*(i+1))
				}
				r.timeout = time.Minute
				res := f.do(i+j, r)
				if res.err != nil || res.status != 200 || res.body != "response to "+r.target || !strings.Contains(res.fields, "x-target: "+r.target+"\r\n") {
					t.Errorf("%s: %v, %d, %q", r.target, res.err, res.status, res.body)
					return
				}
			}
		})
	}
	wg.Wait()
	if f.opened < callers*each/1000 {
		t.Errorf("%d connections for %d requests: nginx has closed none", f.opened, callers*each)
	}
	t.Logf("%d connections, %d requests sent again", f.opened, f.again)
}
