package http2

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"
	"adbuffer/internal/wire/syntax"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// adFields are the fields of a typical ad request.
const adFields = "User-Agent: Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Mobile Safari/537.36\r\n" +
	"Accept: */*\r\n" +
	"Accept-Encoding: gzip, deflate, br\r\n" +
	"Accept-Language: en-US,en;q=0.9\r\n" +
	"Referer: https://news.example/article/12345\r\n" +
	"X-Openrtb-Version: 2.6\r\n" +
	"X-Forwarded-For: 203.0.113.7\r\n"

var adTarget = "/bid?v=2&pub=1234&slot=top&w=320&h=50&gdpr=1&gdpr_consent=" + strings.Repeat("CPXxRfAPXxRfAAfKABENB", 8) + "&cb=1234567890"

func exchangeAd(conn exchange.Conn) error {
	ex := exchange.AcquireExchange()
	defer ex.Release()
	ex.Request.Scheme = "https"
	ex.Block = append(append(append(ex.Block[:0], "ssp.example"...), adTarget...), adFields...)
	a, t := len("ssp.example"), len("ssp.example")+len(adTarget)
	ex.Request.Authority, ex.Request.Target, ex.Request.Fields = ex.Block[:a], ex.Block[a:t], ex.Block[t:]
	ex.Times.Acquired = time.Now()
	ex.Deadline = ex.Times.Acquired.Add(10 * time.Second)
	return conn.Do(ex)
}

// responseFields are the fields of a typical response.
var responseFields = []hpack.HeaderField{
	{Name: ":status", Value: "200"},
	{Name: "server", Value: "nginx/1.22.1"},
	{Name: "date", Value: "Sat, 21 Nov 2026 09:00:00 GMT"},
	{Name: "content-type", Value: "application/json"},
	{Name: "content-length", Value: "1000"},
	{Name: "cache-control", Value: "no-store"},
	{Name: "x-unique", Value: "6f2f1f3a9f0a4b0c8d7e6f5a4b3c2d1e"},
}

func adRequest() exchange.Request {
	return exchange.Request{Scheme: "https", Authority: []byte("ssp.example"), Target: []byte(adTarget), Fields: []byte(adFields)}
}

// BenchmarkCodec writes a request's header block and reads a response's, including their frames,
// with package http2codec.
func BenchmarkCodec(b *testing.B) {
	request := adRequest()
	b.Run("write", func(b *testing.B) {
		c := &Conn{encoder: http2codec.NewEncoder(), peer: http2codec.NewPeerSettings()}
		s := new(stream)
		b.ReportAllocs()
		for b.Loop() {
			c.out.Frames = c.out.Frames[:0]
			if err := c.appendHeaderLocked(s, &request); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(c.out.Frames)), "bytes")
	})
	b.Run("read", func(b *testing.B) {
		wire := responseFrames()
		var in reader
		in.init(testOptions())
		b.ReportAllocs()
		for b.Loop() {
			f, n, _ := http2codec.ParseFrame(wire)
			in.block.Reset()
			if err := in.Decoder.Decode(f.Payload, &in.block); err != nil {
				b.Fatal(err)
			}
			if _, n, _ = http2codec.ParseFrame(wire[n:]); n == 0 {
				b.Fatal("no DATA")
			}
		}
	})
}

// responseFrames returns a HEADERS frame as nginx writes it, without the table and Huffman codes,
// and a DATA frame.
func responseFrames() []byte {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	enc.SetMaxDynamicTableSize(0)
	for _, f := range responseFields {
		enc.WriteField(f)
	}
	var wire bytes.Buffer
	fr := h2.NewFramer(&wire, nil)
	fr.WriteHeaders(h2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
	fr.WriteData(1, true, make([]byte, 1000))
	return wire.Bytes()
}

// BenchmarkLibraryCodec does the work of BenchmarkCodec with Framer and hpack.
func BenchmarkLibraryCodec(b *testing.B) {
	request := adRequest()
	b.Run("write", func(b *testing.B) {
		var wire, block bytes.Buffer
		enc := hpack.NewEncoder(&block)
		fr := h2.NewFramer(&wire, nil)
		var lower []byte
		b.ReportAllocs()
		for b.Loop() {
			wire.Reset()
			block.Reset()
			for _, f := range []hpack.HeaderField{
				{Name: ":method", Value: request.Method.String()},
				{Name: ":scheme", Value: request.Scheme},
				{Name: ":authority", Value: string(request.Authority)},
				{Name: ":path", Value: string(request.Target), Sensitive: true},
			} {
				enc.WriteField(f)
			}
			for fields := request.Fields; len(fields) > 0; {
				end := bytes.IndexByte(fields, '\n')
				line := fields[:end-1]
				fields = fields[end+1:]
				colon := bytes.IndexByte(line, ':')
				lower = append(lower[:0], line[:colon]...)
				for i, c := range lower {
					lower[i] = syntax.Lower[c]
				}
				enc.WriteField(hpack.HeaderField{Name: string(lower), Value: string(line[colon+2:])})
			}
			fr.WriteHeaders(h2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
		}
		b.ReportMetric(float64(wire.Len()), "bytes")
	})
	b.Run("read", func(b *testing.B) {
		wire := responseFrames()
		var src bytes.Reader
		fr := h2.NewFramer(io.Discard, &src)
		fr.SetReuseFrames()
		var fields []byte
		dec := hpack.NewDecoder(4096, func(f hpack.HeaderField) {
			fields = append(append(append(append(fields, f.Name...), ": "...), f.Value...), "\r\n"...)
		})
		b.ReportAllocs()
		for b.Loop() {
			src.Reset(wire)
			f, err := fr.ReadFrame()
			if err != nil {
				b.Fatal(err)
			}
			fields = fields[:0]
			if _, err := dec.Write(f.(*h2.HeadersFrame).HeaderBlockFragment()); err != nil {
				b.Fatal(err)
			}
			if _, err := fr.ReadFrame(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
