package ssp

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// encoders are libraries for the content codings.
var encoders = []struct {
	coding string
	writer func(io.Writer) io.WriteCloser
}{
	{"gzip", func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }},
	{"X-GZIP", func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }},
	{"deflate", func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }},
	{"Deflate", func(w io.Writer) io.WriteCloser { z, _ := flate.NewWriter(w, 6); return z }},
	{"br", func(w io.Writer) io.WriteCloser { return brotli.NewWriterLevel(w, 5) }},
	{"BR", func(w io.Writer) io.WriteCloser {
		return brotli.NewWriterOptions(w, brotli.WriterOptions{Quality: 3, LGWin: 24})
	}},
	{"br", func(w io.Writer) io.WriteCloser {
		return brotli.NewWriterOptions(w, brotli.WriterOptions{Quality: 1, LGWin: 10})
	}},
	{"zstd", func(w io.Writer) io.WriteCloser { z, _ := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1)); return z }},
	{"Zstd", func(w io.Writer) io.WriteCloser {
		z, _ := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(maxZstdWindow))
		return z
	}},
}

// encode writes body in two pieces with a flush between them, like a server that sends a response
// while it produces it.
func encode(t testing.TB, writer func(io.Writer) io.WriteCloser, body string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := writer(&b)
	half := len(body) / 2
	for i, part := range []string{body[:half], body[half:]} {
		if _, err := io.WriteString(w, part); err != nil {
			t.Fatal(err)
		}
		if f, ok := w.(interface{ Flush() error }); ok && i == 0 {
			if err := f.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const (
	noAdVAST  = `<?xml version="1.0"?><VAST version="4.2"></VAST>`
	adVAST    = `<VAST version="4.2"><Ad id="1"><InLine/></Ad></VAST>`
	noBidJSON = `{"id":"1","seatbid":[]}`
	bidJSON   = `{"id":"1","seatbid":[{"bid":[{"id":"2"}]}]}`
)

func classifyCoded(by NoBidBody, body []byte, codings ...string) upstream.Outcome {
	s := newSSP(options(func(o *Options) { o.NoBidBody = by }), &fakePool{})
	a := &upstream.Response{Status: 200, Body: body}
	for _, c := range codings {
		a.Fields = append(a.Fields, "content-encoding: "+c+"\r\n"...)
	}
	return s.classify(&Request{Method: upstream.GET}, a)
}

// Once, a compressed no-bid counted as an ad, and ended the waterfall.
func TestCompressedNoBidIsANoBid(t *testing.T) {
	for i, e := range encoders {
		t.Run(fmt.Sprint(e.coding, " ", i), func(t *testing.T) {
			for _, c := range []struct {
				by   NoBidBody
				body string
				want upstream.Outcome
			}{
				{NoBidVAST, noAdVAST, upstream.NoBid},
				{NoBidVAST, adVAST, upstream.Fill},
				{NoBidOpenRTB, noBidJSON, upstream.NoBid},
				{NoBidOpenRTB, bidJSON, upstream.Fill},
				{NoBidNone, noBidJSON, upstream.Fill},
				{NoBidVAST, noAdVAST + strings.Repeat(" ", maxScan-len(noAdVAST)), upstream.NoBid},
				{NoBidVAST, noAdVAST + strings.Repeat(" ", maxScan-len(noAdVAST)+1), upstream.Fill},
				{NoBidVAST, "", upstream.NoBid},
			} {
				coded := encode(t, e.writer, c.body)
				if len(coded) > maxCodedScan {
					t.Fatalf("%d bytes are %d compressed", len(c.body), len(coded))
				}
				before := bytes.Clone(coded)
				for range 3 { // decoders are reused
					if got := classifyCoded(c.by, coded, e.coding); got != c.want {
						t.Errorf("%.60s by %v is %v, want %v", c.body, c.by, got, c.want)
					}
				}
				if !bytes.Equal(coded, before) {
					t.Fatal("the search changed the body")
				}
				if c.by == NoBidNone || len(coded) < 2 || c.body == "" {
					continue
				}
				// A body that cannot be decoded to its end may hold an ad.
				for _, n := range []int{1, len(coded) / 2, len(coded) - 1} {
					if got := classifyCoded(c.by, coded[:n], e.coding); got != upstream.Fill {
						t.Errorf("the first %d of %d bytes of %.60s are %v", n, len(coded), c.body, got)
					}
				}
			}
		})
	}
}

func TestBodiesThatAreNotDecoded(t *testing.T) {
	gz := func(body string) []byte { return encode(t, encoders[0].writer, body) }
	twice := gz(string(gz(noBidJSON)))
	noise := make([]byte, 3*maxCodedScan)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	for _, c := range []struct {
		name    string
		body    []byte
		codings []string
	}{
		{"another coding", []byte(noBidJSON), []string{"compress"}},
		{"no coding's name", []byte(noBidJSON), []string{""}},
		{"two codings in one field", twice, []string{"gzip, gzip"}},
		{"two codings in two fields", twice, []string{"gzip", "gzip"}},
		{"a coding and identity", gz(noBidJSON), []string{"gzip", "identity"}},
		{"larger than the decoding limit", gz(noBidJSON + base64.StdEncoding.EncodeToString(noise)), []string{"gzip"}},
		{"another coding than the label", gz(noBidJSON), []string{"br"}},
		{"no coding at all", []byte(noBidJSON), []string{"deflate"}},
		{"bytes after the end", append(gz(noBidJSON), "x"...), []string{"gzip"}},
		{"bytes after brotli's end", append(encode(t, encoders[4].writer, noBidJSON), "x"...), []string{"br"}},
		{"a wrong checksum", func() []byte { b := gz(noBidJSON); b[len(b)-5] ^= 1; return b }(), []string{"gzip"}},
	} {
		if got := classifyCoded(NoBidOpenRTB, c.body, c.codings...); got != upstream.Fill {
			t.Errorf("%s: %v, want fill", c.name, got)
		}
	}
	if got := classifyCoded(NoBidOpenRTB, append(gz(`{"id":"1",`), gz(`"seatbid":[]}`)...), "gzip"); got != upstream.NoBid {
		t.Errorf("two members of gzip: %v, want no_bid", got)
	}
}

// Node's encoders are the C libraries that servers use.
func TestNoBidsCompressedByOtherEncoders(t *testing.T) {
	out, err := exec.Command(testsupport.Needs(t, "nodejs", "node"), "-e", `
const z = require("zlib"), c = z.constants;
for (const text of process.argv.slice(1)) {
  const b = Buffer.from(text);
  for (const [coding, coded] of [
    ["gzip", z.gzipSync(b)], ["gzip", z.gzipSync(b, {level: 1})], ["deflate", z.deflateSync(b)], ["deflate", z.deflateRawSync(b)],
    ["br", z.brotliCompressSync(b)], ["br", z.brotliCompressSync(b, {params: {[c.BROTLI_PARAM_LGWIN]: 24, [c.BROTLI_PARAM_QUALITY]: 4}})],
    ["br", z.brotliCompressSync(b, {params: {[c.BROTLI_PARAM_LGWIN]: 17}})], ["br", z.brotliCompressSync(b, {params: {[c.BROTLI_PARAM_MODE]: c.BROTLI_MODE_TEXT, [c.BROTLI_PARAM_SIZE_HINT]: b.length}})],
  ]) console.log(coding, coded.toString("base64"));
}`, noBidJSON, bidJSON).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 16 {
		t.Fatalf("node printed %s", out)
	}
	for i, line := range lines {
		coding, text, _ := strings.Cut(line, " ")
		body, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		want := upstream.NoBid
		if i >= len(lines)/2 {
			want = upstream.Fill
		}
		if got := classifyCoded(NoBidOpenRTB, body, coding); got != want {
			t.Errorf("%s: %v, want %v", line, got, want)
		}
	}
}

// FuzzCoded classifies any bytes as a compressed body. It also compares the result for a compressed
// body with that for the plain body.
func FuzzCoded(f *testing.F) {
	for _, body := range []string{noAdVAST, bidJSON} {
		for i, e := range encoders {
			f.Add(encode(f, e.writer, body), []byte(body), i)
		}
	}
	for _, c := range hostileBodies(f) {
		for i := range encoders {
			if encoders[i].coding == c.coding {
				f.Add(c.body, []byte(nil), i)
				break
			}
		}
	}
	f.Fuzz(func(t *testing.T, coded, body []byte, i int) {
		e := encoders[uint(i)%uint(len(encoders))]
		before := bytes.Clone(coded)
		NoBidVAST.hasCodedAd([]byte(e.coding), coded)
		if !bytes.Equal(before, coded) {
			t.Fatal("the search changed the body")
		}
		for _, by := range []NoBidBody{NoBidVAST, NoBidOpenRTB} {
			coded := encode(t, e.writer, string(body))
			want := by.hasAd(body) || len(coded) > maxCodedScan
			if got, _ := by.hasCodedAd([]byte(e.coding), coded); got != want {
				t.Fatalf("%q in %s: %v, want %v", body, e.coding, got, want)
			}
		}
	})
}

func BenchmarkCompressedNoBid(b *testing.B) {
	for _, i := range []int{0, 2, 4, 7} {
		e := encoders[i]
		body := encode(b, e.writer, noBidJSON)
		b.Run(e.coding, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if ad, _ := NoBidOpenRTB.hasCodedAd([]byte(e.coding), body); ad {
					b.Fatal("an ad")
				}
			}
		})
	}
}
