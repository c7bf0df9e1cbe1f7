package http2

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// bodies returns how many bytes the exchanges of a connection have allocated, and the number of
// exchanges.
func (c *Conn) bodies() (memory, fields, exchanges int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.streams.slots {
		if s := c.streams.slots[i].stream; s != nil {
			memory += cap(s.ex.Response.Body)
			fields = max(fields, cap(s.ex.Response.Fields))
			exchanges++
		}
	}
	return memory, fields, exchanges
}

// hostileStep returns the peer's next frame: claims without data, bodies in pieces of all sizes,
// padding, resets, and ends at any moment.
func hostileStep(r *rand.Rand, ids []uint32) (b []byte) {
	id := ids[r.IntN(len(ids))]
	switch r.IntN(12) {
	case 0:
		return appendHeaders(nil, id, false, ":status", "103")
	case 1, 2:
		return appendHeaders(nil, id, false, ":status", "200", "content-length", itoa(r.IntN(1<<20)))
	case 3, 4:
		return appendHeaders(nil, id, false, ":status", "200")
	case 5:
		return http2codec.AppendReset(nil, id, h2.ErrCodeCancel)
	case 6:
		pad := r.IntN(256)
		n := r.IntN(1000)
		b = http2codec.AppendFrameHeader(nil, 1+n+pad, h2.FrameData, h2.FlagDataPadded, id)
		b = append(b, byte(pad))
		return append(b, make([]byte, n+pad)...)
	default:
		return appendData(nil, id, r.IntN(20) == 0, string(make([]byte, r.IntN(1<<r.IntN(15)))))
	}
}

// Whatever a peer claims and sends, adbuffer reserves at most as many bytes as have arrived. The
// memory is at most twice that, plus 4 KB for each response that has begun. At the end no byte is
// reserved.
func TestReservedBytesFollowTheBytesThatArrived(t *testing.T) {
	scripts := 30
	if *full {
		scripts = 150
	}
	testsupport.Bubble(t, func(t *testing.T) {
		for seed := range uint64(scripts) {
			r := rand.New(rand.NewPCG(seed, 11))
			opts := testOptions()
			opts.MaxResponseBytes = 1 << 20
			share, all := exchange.NewBudget(int64(1)<<(10+r.IntN(14))), exchange.NewBudget(1<<30)
			c, w, _ := onWire(t, opts)
			var ids []uint32
			var done []<-chan result
			for i := range uint32(1 + r.IntN(8)) {
				ids = append(ids, 2*i+1)
				done = append(done, startWithin(c, share, all, time.Duration(1+r.IntN(3))*time.Second))
				synctest.Wait()
			}
			received := int64(0)
			for step := range 60 {
				b := hostileStep(r, ids)
				for len(b) > 0 { // in pieces
					n := min(len(b), 1+r.IntN(1+len(b)))
					w.send(b[:n])
					received += int64(n)
					b = b[n:]
					synctest.Wait()
					memory, fields, exchanges := c.bodies()
					what := fmt.Sprintf("seed %d, step %d, %d bytes received", seed, step, received)
					used := all.Used()
					testsupport.MustTrue(t, used <= received && used == share.Used() && used <= share.Limit(), "%s: %d bytes are reserved, %d of a share of %d", what, used, share.Used(), share.Limit())
					testsupport.MustTrue(t, int64(memory) <= 2*received+4<<10*int64(exchanges), "%s: %d bytes of memory for %d bodies", what, memory, exchanges)
					testsupport.MustTrue(t, fields <= 2*opts.MaxResponseHeaderBytes, "%s: %d bytes of memory for fields", what, fields)
				}
				if r.IntN(10) == 0 {
					time.Sleep(500 * time.Millisecond)
				}
			}
			time.Sleep(4 * time.Second)
			for _, ch := range done {
				<-ch
			}
			testsupport.MustTrue(t, all.Used() == 0 && share.Used() == 0, "seed %d: %d bytes stay reserved, %d of the share", seed, all.Used(), share.Used())
			w.finish(c)
		}
	})
}

// startWithin runs an exchange whose body counts in both budgets.
func startWithin(c *Conn, share, all *exchange.Budget, timeout time.Duration) <-chan result {
	ch := make(chan result, 1)
	go func() {
		ex := exchange.AcquireExchange()
		ex.Response.Body = nil // memory of an earlier use would count too
		ex.Request = exchange.Request{Method: exchange.GET, Scheme: "https", Authority: []byte("ssp.example"), Target: []byte("/")}
		ex.Budget, ex.Share = all, share
		ex.Times.Acquired = time.Now()
		ex.Deadline = ex.Times.Acquired.Add(timeout)
		err := c.Do(ex)
		ex.Release()
		ch <- result{err: err}
	}()
	return ch
}

// A stuck stream holds only the bytes that arrived on it. The other streams of the connection
// continue, however many streams are stuck.
func TestStuckStreamsDelayNoOtherStream(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		c, w, _ := onWire(t, with(func(o *Options) { o.MaxResponseBytes = 1 << 20 }))
		share, all := exchange.NewBudget(64<<20), exchange.NewBudget(256<<20)
		var stuck []<-chan result
		const n = 10
		for i := range uint32(n) {
			stuck = append(stuck, startWithin(c, share, all, time.Minute))
			synctest.Wait()
			// Send the stream's whole window except one byte, and then nothing more.
			b := appendHeaders(nil, 2*i+1, false, ":status", "200", "content-length", itoa(1<<20))
			for sent := 0; sent < 1<<20-http2codec.MaxFrameSize; sent += http2codec.MaxFrameSize {
				b = appendData(b, 2*i+1, false, string(make([]byte, http2codec.MaxFrameSize)))
			}
			w.send(b)
			synctest.Wait()
		}
		want := int64(n * (1<<20 - http2codec.MaxFrameSize))
		testsupport.Equal(t, all.Used(), want, "%d bytes are reserved, want the %d that have arrived", want)
		for i := range uint32(10) {
			done := get("/").start(c)
			synctest.Wait()
			id := 2*(n+i) + 1
			w.send(appendData(appendHeaders(nil, id, false, ":status", "200"), id, true, "moves"))
			wantBodyOf(t, <-done, "moves")
		}
		c.Close(exchange.ClosedDrain)
		for _, ch := range stuck {
			<-ch
		}
		testsupport.Equal(t, all.Used(), 0, "%d bytes stay reserved")
	})
}
