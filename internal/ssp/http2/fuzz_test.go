package http2

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// fuzzedExchanges is how many exchanges wait for the fuzzer's frames, on streams 1, 3, 5 and 7. The
// third is an upload, the last a HEAD.
const fuzzedExchanges = 4

// replay runs exchanges against a peer that sends in. All of them must end, and all places must be
// free again.
func replay(t *testing.T, in []byte) (results [fuzzedExchanges]result) {
	t.Helper()
	w, o := newWire(), newOwner()
	conn := newOnWire(w, w, o, with(func(o *Options) { o.MaxResponseBytes, o.MaxResponseHeaderBytes = 100000, 4096 }))
	budget := exchange.NewBudget(1 << 20)
	var done [fuzzedExchanges]<-chan result
	for i := range done {
		r := get("/" + itoa(2*i+1))
		switch i {
		case 2:
			r.method, r.body = exchange.POST, strings.Repeat("u", http2codec.InitialWindow+100)
		case 3:
			r.method = exchange.HEAD
		}
		r.budget, r.timeout = budget, time.Minute
		done[i] = r.start(conn)
		w.awaitRequest(uint32(2*i + 1))
	}
	w.send(in)
	w.end(io.EOF)
	for i := range done {
		results[i] = wait(t, done[i])
	}
	conn.Close(exchange.ClosedDrain)
	testsupport.Eventually(t, "all places are freed", func() bool { return o.freed.Load() >= fuzzedExchanges })
	testsupport.MustEqual(t, o.freed.Load(), fuzzedExchanges, "%d places were freed")
	testsupport.MustEqual(t, budget.Used(), 0, "%d bytes stay reserved")
	return results
}

// frames returns the bytes that write produces.
func frames(write func(fr *h2.Framer, block func(fields ...string) []byte)) []byte {
	var out, b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	fr := h2.NewFramer(&out, nil)
	fr.AllowIllegalWrites = true
	write(fr, func(fields ...string) []byte {
		b.Reset()
		for i := 0; i < len(fields); i += 2 {
			enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
		}
		return bytes.Clone(b.Bytes())
	})
	return out.Bytes()
}

func FuzzAnyBytesEndAllExchanges(f *testing.F) {
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Add(frames(func(fr *h2.Framer, block func(...string) []byte) {
		fr.WriteSettings(h2.Setting{ID: h2.SettingMaxConcurrentStreams, Val: 3}, h2.Setting{ID: h2.SettingInitialWindowSize, Val: 1})
		fr.WriteHeaders(h2.HeadersFrameParam{StreamID: 1, BlockFragment: block(":status", "103"), EndHeaders: true})
		fr.WriteHeaders(h2.HeadersFrameParam{StreamID: 1, BlockFragment: block(":status", "200", "content-length", "4")})
		fr.WriteContinuation(1, true, block("x-more", "1"))
		fr.WriteDataPadded(1, false, []byte("bo"), make([]byte, 9))
		fr.WriteWindowUpdate(5, 10)
		fr.WriteData(1, false, []byte("dy"))
		fr.WriteHeaders(h2.HeadersFrameParam{StreamID: 1, BlockFragment: block("x-trailer", "1"), EndHeaders: true, EndStream: true})
		fr.WriteRSTStream(3, h2.ErrCodeRefusedStream)
		fr.WritePing(false, [8]byte{})
		fr.WriteGoAway(5, h2.ErrCodeNo, []byte("bye"))
		fr.WriteWindowUpdate(0, 1000)
		fr.WriteHeaders(h2.HeadersFrameParam{StreamID: 7, BlockFragment: block(":status", "200", "content-length", "4"), EndHeaders: true, EndStream: true})
	}))
	f.Fuzz(func(t *testing.T, in []byte) {
		for i, r := range replay(t, in) {
			if r.err == nil && (r.status < 200 || r.status > 599 || len(r.body) > 100000 || i == 3 && r.body != "") {
				t.Errorf("exchange %d: %+v", i, r)
			}
			checkLines(t, r.fields)
		}
	})
}

// checkLines fails the test unless fields are well-formed lines of HTTP/1.
func checkLines(t *testing.T, fields string) {
	t.Helper()
	for fields != "" {
		line, rest, ok := strings.Cut(fields, "\r\n")
		name, value, colon := strings.Cut(line, ": ")
		if !ok || !colon || http2codec.Classify([]byte(name), []byte(value)) > http2codec.ContentLength || strings.ContainsAny(line, "\r\n\x00") {
			t.Fatalf("a malformed line was accepted: %q", line)
		}
		fields = rest
	}
}

// FuzzResponsesReachTheirOwnCallers lets a fuzzer choose frames. Each frame names the request that
// it belongs to.
func FuzzResponsesReachTheirOwnCallers(f *testing.F) {
	f.Add([]byte{0x00, 0x40, 0x50, 0x41, 0x11, 0x52, 0x03, 0x43})
	f.Add([]byte{0x00, 0x10, 0x40, 0x80, 0x20, 0xc0, 0x51, 0x53, 0xb1, 0x02, 0x52, 0x13, 0x63})
	f.Add([]byte{0x00, 0x70, 0x12, 0x52, 0x80, 0x90, 0xa1, 0xd0, 0x00, 0x40})
	f.Fuzz(func(t *testing.T, script []byte) {
		in := frames(func(fr *h2.Framer, block func(...string) []byte) {
			fr.WriteSettings()
			for _, op := range script[:min(len(script), 500)] {
				id := uint32(op&3)*2 + 1
				name := itoa(int(id))
				last := op&4 != 0
				head := h2.HeadersFrameParam{StreamID: id, EndHeaders: true, EndStream: last}
				switch op >> 4 {
				case 0, 1, 2:
					head.BlockFragment = block(":status", "200", "x-stream", name)
					fr.WriteHeaders(head)
				case 3:
					head.BlockFragment = block(":status", "103", "x-stream", name)
					fr.WriteHeaders(head)
				case 4, 5:
					fr.WriteData(id, last, bytes.Repeat([]byte(name), int(op)))
				case 6:
					fr.WriteDataPadded(id, last, []byte(name), make([]byte, 40))
				case 7:
					head.BlockFragment = block("x-trailer", name)
					fr.WriteHeaders(head)
				case 8:
					b := block(":status", "200", "x-stream", name)
					fr.WriteHeaders(h2.HeadersFrameParam{StreamID: id, BlockFragment: b[:1], EndStream: last})
					fr.WriteContinuation(id, true, b[1:])
				case 9:
					fr.WriteWindowUpdate(id, 50)
				case 10:
					fr.WriteWindowUpdate(0, 50)
				case 11:
					fr.WriteRSTStream(id, h2.ErrCode(op&15))
				case 12:
					fr.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: uint32(op&15) * 10000})
				case 13:
					fr.WriteGoAway(id, h2.ErrCodeNo, nil)
				case 14:
					fr.WritePing(last, resetPing)
				case 15:
					head.BlockFragment = block(":status", "200", "x-stream", name, "content-length", fmt.Sprint(int(op)))
					fr.WriteHeaders(head)
				}
			}
		})
		for i, r := range replay(t, in) {
			if r.err != nil {
				continue
			}
			name := itoa(2*i + 1)
			testsupport.True(t, strings.Contains(r.fields, "x-stream: "+name+"\r\n") && strings.Count(r.fields, "x-stream") == 1, "stream %s got %q", name, r.fields)
			testsupport.True(t, strings.Trim(r.body, name) == "", "stream %s has the body %q", name, r.body)
		}
	})
}

// A SETTINGS frame with several settings has the same effect as one frame for each of them.
func FuzzOneSettingsFrameEqualsManyFrames(f *testing.F) {
	f.Add(settingsPayload(h2.Setting{ID: h2.SettingInitialWindowSize, Val: 1}, h2.Setting{ID: h2.SettingInitialWindowSize, Val: 2}))
	f.Add(settingsPayload(h2.Setting{ID: h2.SettingHeaderTableSize, Val: 0}, h2.Setting{ID: h2.SettingHeaderTableSize, Val: 4096}))
	f.Add(settingsPayload(h2.Setting{ID: h2.SettingMaxFrameSize, Val: 1}))
	f.Add([]byte{0, 4, 0xff, 0xff, 0xff, 0xff, 0, 9, 0})
	f.Add(settingsPayload(h2.Setting{ID: h2.SettingInitialWindowSize, Val: 7}, h2.Setting{ID: h2.SettingHeaderTableSize, Val: 100},
		h2.Setting{ID: 0x99, Val: 1}, h2.Setting{ID: h2.SettingHeaderTableSize, Val: 5},
		h2.Setting{ID: h2.SettingInitialWindowSize, Val: 9}, h2.Setting{ID: h2.SettingHeaderTableSize, Val: 200}))
	f.Add(settingsPayload(h2.Setting{ID: h2.SettingMaxFrameSize, Val: 1}, h2.Setting{ID: h2.SettingMaxFrameSize, Val: http2codec.MaxFrameSize}))
	f.Fuzz(func(t *testing.T, p []byte) {
		all, err := http2codec.ParseSettings(p)
		byOne := make(map[h2.SettingID]uint32)
		smallest, bad := uint32(http2codec.NoLimit), len(p)%6 != 0
		for rest := p; len(rest) >= 6; rest = rest[6:] {
			id, value := h2.SettingID(binary.BigEndian.Uint16(rest)), binary.BigEndian.Uint32(rest[2:])
			s := h2.Setting{ID: id, Val: value}
			if bad = bad || int(id) < len(all.Value) && s.Valid() != nil; bad {
				break
			}
			if byOne[id] = value; id == h2.SettingHeaderTableSize {
				smallest = min(smallest, value)
			}
		}
		testsupport.MustTrue(t, (err != nil) == bad, "%x: error %v, want one: %t", p, err, bad)
		if err != nil {
			return
		}
		for id := range h2.SettingID(len(all.Value)) {
			if value, has := byOne[id]; has != all.Has[id] && id != 0 || has && id != 0 && value != all.Value[id] {
				t.Fatalf("%x: %v is %d (%t), want %d (%t)", p, id, all.Value[id], all.Has[id], value, has)
			}
		}
		testsupport.MustEqual(t, all.SmallestTable, smallest, "%[2]x: the smallest table is %[1]d", p)
	})
}
