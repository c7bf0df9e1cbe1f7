package proxy_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"

	"adbuffer/internal/test/testsupport"
)

// sender is a client that sends a body in small pieces, and claims the largest allowed length.
type sender struct {
	*simClient
	rest string // of the body, on the wire
	came int    // bytes of head and body that have arrived
	over bool
}

func (s *simProxy) newSender(r *rand.Rand) *sender {
	v := &sender{simClient: s.dial()}
	n := []int{1, 100, 4095, 4096, 4097, 8192, 100_000, 1 << 18}[r.IntN(8)]
	head := fmt.Sprintf("POST /fill HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", n)
	v.rest = strings.Repeat("x", n)
	if r.IntN(2) == 0 {
		head = "POST /fill HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
		chunk := 1 + r.IntN(n)
		v.rest = strings.Repeat(fmt.Sprintf("%x\r\n%s\r\n", chunk, strings.Repeat("x", chunk)), n/chunk) + "0\r\n\r\n"
	}
	v.Arrive(head)
	v.came = len(head)
	return v
}

// At every step, the memory of all bodies is at most twice the bytes that have arrived, plus 4 KB
// for each body. A request that has ended holds no memory.
func TestBodiesHoldAtMostTwiceTheirArrivedBytes(t *testing.T) {
	cases := 25
	if *full {
		cases = 10_000
	}
	const perConnection = 4096
	simBubble(t, func(t *testing.T) {
		s := newSimProxy(t, nil)
		defer s.close()
		r := rand.New(rand.NewPCG(7, 8))
		for range cases {
			var all []*sender
			for range 1 + r.IntN(6) {
				all = append(all, s.newSender(r))
			}
			for left := len(all); left > 0; {
				v := all[r.IntN(len(all))]
				if v.over {
					continue
				}
				n := min(len(v.rest), []int{1, 10, 1000, 4096, 10_000, 60_000}[r.IntN(6)])
				v.Arrive(v.rest[:n])
				v.rest = v.rest[n:]
				v.came += n
				switch {
				case v.rest == "":
					v.wantOK()
					v.over = true
				case r.IntN(20) == 0:
					v.End()
					v.over = true
				}
				synctest.Wait()
				most := int64(0)
				for _, v := range all {
					if !v.over {
						most += int64(2*v.came + perConnection)
					}
				}
				if v.over {
					left--
				}
				held := s.p.Snapshot().BufferedBytes
				testsupport.MustTrue(t, held <= most, "%d bytes are held, want at most %d", held, most)
			}
			for _, v := range all {
				v.Release()
			}
		}
	})
}

// The same holds for streams of HTTP/2.
func TestBodiesOfStreamsHoldAtMostTwiceTheirArrivedBytes(t *testing.T) {
	const streams, perStream = 10, 4096
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.MaxBufferedBytes = 4 << 20 }), echoes("a"))
	f := m.frames(t)
	r := rand.New(rand.NewPCG(9, 10))
	var ids []uint32
	var came int64
	for i := range uint32(streams) {
		ids = append(ids, 2*i+1)
		f.request(ids[i], false, ":method", "POST", "content-length", "262144")
	}
	m.awaitUploads(streams)
	check := func() {
		t.Helper()
		for limit := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Microsecond) {
			held := m.p.Snapshot().BufferedBytes
			testsupport.MustTrue(t, held <= 2*came+streams*perStream, "%d bytes are held, when %d have come on %d streams", held, came, streams)
			if held >= came {
				return
			}
			testsupport.MustTrue(t, !time.Now().After(limit), "%d bytes have come, and %d are held", came, held)
		}
	}
	check()
	sent := make(map[uint32]int)
	for range 100 {
		id := ids[r.IntN(len(ids))]
		n := min([]int{1, 1000, 4000, 10_000}[r.IntN(4)], 60_000-sent[id]) // within the windows
		if n == 0 {
			continue
		}
		f.framer.WriteData(id, false, make([]byte, n))
		sent[id] += n
		came += int64(n)
		check()
	}
	f.conn.Close()
	m.awaitUploads(0)
	m.await(0, "adbuffer_buffered_bytes", "")
}
