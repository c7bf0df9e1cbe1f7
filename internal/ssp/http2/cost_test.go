//go:build !race

// The race detector would distort the costs.

package http2

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// fed is a connection without a reader: the test passes frames to it.
type fed struct {
	t    testing.TB
	conn *Conn
	all  []*exchange.Exchange // exchanges of its streams, including ended ones
}

func newFed(t testing.TB, opts Options) *fed {
	f := &fed{t: t, conn: newConn(nil, newWire(), newOwner(), opts.withDefaults())}
	f.feed(http2codec.AppendFrameHeader(nil, 0, h2.FrameSettings, 0, 0))
	f.conn.socketClosed = true // the connection writes nothing to the peer
	return f
}

// open opens n streams, and returns the number of the first; each next number is two higher. body
// is the number of bytes that each request still has to send.
func (f *fed) open(n, body int) (first uint32) {
	f.t.Helper()
	c := f.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range n {
		ex := exchange.AcquireExchange()
		ex.Deadline = time.Now().Add(time.Hour)
		ex.Request = exchange.Request{Method: exchange.GET, Scheme: "https", Authority: []byte("ssp.example"), Target: []byte("/")}
		if body > 0 {
			ex.Request.Method, ex.Request.Body = exchange.POST, make([]byte, body)
		}
		s, err := c.openLocked(ex)
		testsupport.NoError(f.t, err)
		if f.all = append(f.all, ex); i == 0 {
			first = s.id
		}
	}
	c.out.Frames = c.out.Frames[:0]
	return first
}

// clear ends all streams.
func (f *fed) clear() {
	c := f.conn
	c.mu.Lock()
	for i := range c.streams.slots {
		if s := c.streams.slots[i].stream; s != nil {
			c.failLocked(s, errClosed)
		}
	}
	c.freed = nil
	c.mu.Unlock()
	for _, ex := range f.all {
		<-ex.Done()
		ex.Release()
	}
	f.all = f.all[:0]
}

// feed handles the frames in b. It returns the CPU time used, and how many bytes the connection
// wants to write in response.
func (f *fed) feed(b []byte) (took time.Duration, out int, err error) {
	c := f.conn
	c.flood = http2codec.Flood{Left: 1 << 30, Late: http2codec.MaxLate} // this test measures the cost of a frame
	c.out.Frames = c.out.Frames[:0]
	took = testsupport.ThreadTime(func() {
		for len(b) > 0 && err == nil {
			fr, n, violation := c.in.Next(b)
			if n > 0 && violation == nil {
				violation = c.handle(fr)
			}
			if violation != nil {
				err = violation
			} else if n == 0 {
				f.t.Fatal("half a frame")
			}
			b = b[n:]
		}
	})
	return took, len(c.out.Frames), err
}

// response has the fields of a usual response of an SSP.
func response(b []byte, id uint32) []byte {
	b = appendHeaders(b, id, false, ":status", "200", "content-type", "application/json", "content-length", "1024",
		"date", "Mon, 02 Jan 2006 15:04:05 GMT", "server", "nginx", "cache-control", "no-store")
	return appendData(b, id, true, strings.Repeat("x", 1024))
}

// hostility is a kind of frame whose cost is high for its size. frames prepares the connection, and
// returns one round of these frames.
type hostility struct {
	name   string
	frames func(f *fed) []byte
	// decoded says that header lists count with their decoded size, which is bounded, and not with
	// their encoded size.
	decoded bool
	ends    bool // the frames end the connection
	fresh   bool // each round needs a new connection
}

func repeat(n int, b []byte) []byte { return slices.Repeat(b, n) }

// block returns HEADERS with an encoded header list, on a new stream.
func (f *fed) block(encoded []byte) []byte {
	id := f.open(1, 0)
	var b []byte
	kind, flags := h2.FrameHeaders, h2.Flags(0)
	for {
		n := min(len(encoded), http2codec.MaxFrameSize)
		if n == len(encoded) {
			flags |= h2.FlagHeadersEndHeaders
		}
		b = append(http2codec.AppendFrameHeader(b, n, kind, flags, id), encoded[:n]...)
		if encoded = encoded[n:]; len(encoded) == 0 {
			return b
		}
		kind = h2.FrameContinuation
	}
}

var status200 = []byte{0x88}

func literal(first byte, name, value string) []byte {
	b := append([]byte{first}, hpackString(name)...)
	return append(b, hpackString(value)...)
}

func hpackString(s string) []byte { return append(hpackInt(nil, 7, 0, len(s)), s...) }

func hpackInt(b []byte, prefix uint, first byte, n int) []byte {
	if limit := 1<<prefix - 1; n < limit {
		return append(b, first|byte(n))
	} else {
		b = append(b, first|byte(limit))
		for n -= limit; n >= 128; n >>= 7 {
			b = append(b, byte(n)|0x80)
		}
		return append(b, byte(n))
	}
}

func huffman(s string) []byte {
	coded := hpack.AppendHuffmanString(nil, s)
	return append(hpackInt(nil, 7, 0x80, len(coded)), coded...)
}

var hostilities = []hostility{
	{name: "DATA of a byte", frames: func(f *fed) []byte {
		id := f.open(1, 0)
		return append(appendHeaders(nil, id, false, ":status", "200"), repeat(5000, appendData(nil, id, false, "x"))...)
	}},
	{name: "empty DATA", frames: func(f *fed) []byte {
		id := f.open(1, 0)
		return append(appendHeaders(nil, id, false, ":status", "200"), repeat(5000, appendData(nil, id, false, ""))...)
	}},
	{name: "DATA of padding", frames: func(f *fed) []byte {
		id := f.open(1, 0)
		pad := append(http2codec.AppendFrameHeader(nil, 2, h2.FrameData, h2.FlagDataPadded, id), 1, 0)
		return append(appendHeaders(nil, id, false, ":status", "200"), repeat(5000, pad)...)
	}},
	{name: "DATA of a byte for a stream that was reset", frames: func(f *fed) []byte {
		id := f.open(1, 0)
		f.feed(appendHeaders(nil, id, false, "malformed", ""))
		return repeat(5000, appendData(nil, id, false, "x"))
	}},
	{name: "DATA and HEADERS behind a whole response", frames: func(f *fed) []byte {
		id := f.open(1, 0)
		f.feed(appendHeaders(nil, id, true, ":status", "200"))
		return repeat(3000, append(appendData(nil, id, false, "x"), append(http2codec.AppendFrameHeader(nil, 1, h2.FrameHeaders, h2.FlagHeadersEndHeaders, id), 0x88)...))
	}},
	{name: "HEADERS of interim responses", frames: func(f *fed) (b []byte) {
		for id, i := f.open(100, 0), uint32(0); i < 100; i++ {
			b = append(b, repeat(maxInterim, appendHeaders(nil, id+2*i, false, ":status", "103"))...)
		}
		return b
	}},
	{name: "CONTINUATION of a byte", frames: func(f *fed) (b []byte) {
		for id, i := f.open(50, 0), uint32(0); i < 50; i++ {
			b = append(http2codec.AppendFrameHeader(b, 1, h2.FrameHeaders, 0, id+2*i), 0x88)
			for j := range http2codec.MaxContinuations {
				flags := h2.Flags(0)
				if j == http2codec.MaxContinuations-1 {
					flags = h2.FlagContinuationEndHeaders
				}
				b = append(http2codec.AppendFrameHeader(b, 1, h2.FrameContinuation, flags, id+2*i), 0x80|33)
			}
		}
		return b
	}},
	{name: "PRIORITY", frames: func(f *fed) []byte {
		return repeat(5000, append(http2codec.AppendFrameHeader(nil, 5, h2.FramePriority, 0, 1), make([]byte, 5)...))
	}},
	{name: "unknown frames", frames: func(*fed) []byte { return repeat(5000, http2codec.AppendFrameHeader(nil, 0, 0x77, 0, 1)) }},
	{name: "PING", frames: func(*fed) []byte { return repeat(5000, http2codec.AppendPing(nil, 0, make([]byte, 8))) }},
	{name: "PING ACK", frames: func(*fed) []byte { return repeat(5000, http2codec.AppendPing(nil, h2.FlagPingAck, make([]byte, 8))) }},
	{name: "RST_STREAM", frames: func(f *fed) (b []byte) {
		for id, i := f.open(1000, 0), uint32(0); i < 1000; i++ {
			b = http2codec.AppendReset(b, id+2*i, h2.ErrCodeCancel)
		}
		return b
	}},
	{name: "RST_STREAM of a stream that is gone", frames: func(f *fed) []byte {
		id := f.open(1, 0)
		f.clear()
		return repeat(5000, http2codec.AppendReset(nil, id, h2.ErrCodeCancel))
	}},
	{name: "empty SETTINGS", frames: func(*fed) []byte { return repeat(5000, http2codec.AppendFrameHeader(nil, 0, h2.FrameSettings, 0, 0)) }},
	{name: "SETTINGS of all kinds", frames: func(f *fed) []byte {
		f.open(10000, 0)
		var p []byte
		for i := range http2codec.MaxFrameSize / 6 {
			id := h2.SettingID(1 + i%7)
			p = http2codec.AppendSetting(p, id, map[h2.SettingID]uint32{
				h2.SettingHeaderTableSize: uint32(i % 5000), h2.SettingMaxConcurrentStreams: uint32(i), h2.SettingInitialWindowSize: uint32(i),
				h2.SettingMaxFrameSize: http2codec.MaxFrameSize + uint32(i), h2.SettingMaxHeaderListSize: uint32(i),
			}[id])
		}
		return repeat(8, append(http2codec.AppendFrameHeader(nil, len(p), h2.FrameSettings, 0, 0), p...))
	}},
	{name: "WINDOW_UPDATE of the connection", frames: func(f *fed) []byte {
		return repeat(5000, http2codec.AppendWindowUpdate(nil, 0, 1))
	}},
	{name: "WINDOW_UPDATE of the connection, for which many wait", frames: func(f *fed) []byte {
		f.conn.windows.Conn = 0
		f.open(10000, 1000)
		return repeat(5000, http2codec.AppendWindowUpdate(nil, 0, 1))
	}},
	{name: "WINDOW_UPDATE of streams that wait for theirs", frames: func(f *fed) (b []byte) {
		f.conn.windows = http2codec.SendWindows{Conn: 1 << 20}
		for id, i := f.open(5000, 1000), uint32(0); i < 5000; i++ {
			b = http2codec.AppendWindowUpdate(b, id+2*i, 1)
		}
		return b
	}},
	{name: "GOAWAY again and again", fresh: true, frames: func(f *fed) []byte {
		f.open(10000, 0)
		return repeat(5000, appendGoAwayOf(nil, http2codec.MaxStreamID, h2.ErrCodeNo))
	}},
	{name: "fields of the static table", decoded: true, frames: func(f *fed) []byte {
		return f.block(append(slices.Clone(status200), repeat(250, []byte{0x80 | 33})...))
	}},
	{name: "fields of the static table, too many", frames: func(f *fed) []byte {
		return f.block(append(slices.Clone(status200), repeat(1200, []byte{0x80 | 33})...))
	}},
	{name: "tiny literals", frames: func(f *fed) []byte {
		return f.block(append(slices.Clone(status200), repeat(250, literal(0, "a", ""))...))
	}},
	{name: "tiny literals for the table", frames: func(f *fed) []byte {
		return f.block(append(slices.Clone(status200), repeat(250, literal(0x40, "a", ""))...))
	}},
	{name: "Huffman-coded literals", frames: func(f *fed) []byte {
		field := append(append([]byte{0x40}, huffman("x-some-name")...), huffman("0000111122223333aaaaeeeeiiiioooo")...)
		return f.block(append(slices.Clone(status200), repeat(100, field)...))
	}},
	{name: "references to a large field", decoded: true, frames: func(f *fed) []byte {
		b := append(slices.Clone(status200), literal(0x40, "x-bomb", strings.Repeat("b", 3000))...)
		return f.block(append(b, repeat(20, []byte{0x80 | 62})...))
	}},
	{name: "names of the table that are indexed again", decoded: true, frames: func(f *fed) []byte {
		b := append(slices.Clone(status200), literal(0x40, strings.Repeat("n", 3000), "")...)
		return f.block(append(b, repeat(20, []byte{0x40 | 62, 0})...))
	}},
	{name: "references to a large field without end", decoded: true, ends: true, frames: func(f *fed) []byte {
		b := append(slices.Clone(status200), literal(0x40, "x-bomb", strings.Repeat("b", 3000))...)
		return f.block(append(b, repeat(http2codec.MaxFrameSize, []byte{0x80 | 62})...))
	}},
	{name: "names of the table that are indexed without end", decoded: true, ends: true, frames: func(f *fed) []byte {
		b := append(slices.Clone(status200), literal(0x40, strings.Repeat("n", 3000), "")...)
		return f.block(append(b, repeat(http2codec.MaxFrameSize, []byte{0x40 | 62, 0})...))
	}},
	{name: "table size updates", frames: func(f *fed) []byte {
		return f.block(append(repeat(5000, []byte{0x20, 0x3f, 0xe1, 0x1f}), 0x88))
	}},
	{name: "integers as long as they may be", frames: func(f *fed) []byte {
		padded := []byte{0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00, 0} // 63, the static table's and one more
		b := append(slices.Clone(status200), literal(0x40, "a", "")...)
		b = append(b, literal(0x40, "b", "")...)
		return f.block(append(b, repeat(200, padded)...))
	}},
}

// costOf is the cost of one byte of a hostility: time, allocated memory, and bytes written in
// response.
type costOf struct{ ns, allocated, written float64 }

// measure returns the lowest of a few measurements.
func (h *hostility) measure(t *testing.T) costOf {
	least := costOf{ns: 1e9, allocated: 1e9}
	opts := testOptions()
	opts.MaxStreams = maxMaxStreams
	for range 4 {
		var took time.Duration
		var bytes, written, allocated float64
		var before, after runtime.MemStats
		f := newFed(t, opts)
		for bytes < 40<<10 {
			b := h.frames(f)
			insert := []byte{0x40, 1, 'a', 1, 'b'} // the first insert allocates the table's memory
			testsupport.NoError(t, f.conn.in.Decoder.Decode(insert, &http2codec.ResponseBlock{Limit: 1 << 10}))
			runtime.ReadMemStats(&before)
			d, out, err := f.feed(b)
			runtime.ReadMemStats(&after)
			testsupport.MustTrue(t, (err != nil) == h.ends, "%s: %v", h.name, err)
			n := len(b)
			if size := f.conn.in.block.Size; h.decoded {
				n = max(n, size)
				most := http2codec.MaxBlock(opts.MaxResponseHeaderBytes) + http2codec.MaxTableSize
				testsupport.True(t, size <= most, "%s: a header list of %d bytes was decoded, want at most %d", h.name, size, most)
			}
			took += d
			bytes += float64(n)
			written += float64(out)
			allocated += float64(after.TotalAlloc - before.TotalAlloc)
			if f.clear(); h.fresh || h.ends {
				f = newFed(t, opts)
			}
		}
		least.ns = min(least.ns, float64(took)/bytes)
		least.allocated = min(least.allocated, allocated/bytes)
		least.written = written / bytes
	}
	return least
}

// Each byte that a peer sends has a bounded cost. RST_STREAM ends an exchange with 13 bytes, and costs
// 30 to 47 times as much as a byte of a response. All other frames cost about 20 times as much or less. A
// frame of 6 bytes that visited all streams would cost 10 000 times as much. ATTACKS.md states mostTimes.
const (
	mostTimes     = 60 // relative to the time of a byte of a response
	mostAllocated = 12
	mostWritten   = 1.5
)

func TestNoFrameCostsMuchMoreThanAResponse(t *testing.T) {
	responses := &hostility{name: "responses", frames: func(f *fed) (b []byte) {
		for id, i := f.open(100, 0), uint32(0); i < 100; i++ {
			b = response(b, id+2*i)
		}
		return b
	}}
	usual := responses.measure(t)
	t.Logf("a byte of a response costs %.2f ns, and allocates %.2f", usual.ns, usual.allocated)
	for _, h := range hostilities {
		cost := h.measure(t)
		times := cost.ns / usual.ns
		for try := 1; try < 10 && times > mostTimes; try++ { // another process may have run during one of the two measurements
			times = min(times, h.measure(t).ns/responses.measure(t).ns)
		}
		t.Logf("%-53s %6.2f ns, %5.1f times a response's; allocates %4.2f, writes %4.2f", h.name, cost.ns, times, cost.allocated, cost.written)
		if times > mostTimes || cost.allocated > mostAllocated || cost.written > mostWritten {
			t.Errorf("%s: a byte costs %.2f ns, %.1f times that of a response, allocates %.2f and writes %.2f; want at most %d, %d and %v",
				h.name, cost.ns, times, cost.allocated, cost.written, mostTimes, mostAllocated, mostWritten)
		}
	}
}
