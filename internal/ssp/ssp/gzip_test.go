package ssp

import (
	"bytes"
	"encoding/base64"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// gzipped compresses body in two pieces.
func gzipped(body string) []byte {
	half := len(body) / 2
	return []byte(testsupport.Gzip(body[:half], body[half:]))
}

const (
	noAdVAST  = `<?xml version="1.0"?><VAST version="4.2"></VAST>`
	adVAST    = `<VAST version="4.2"><Ad id="1"><InLine/></Ad></VAST>`
	noBidJSON = `{"id":"1","seatbid":[]}`
	bidJSON   = `{"id":"1","seatbid":[{"bid":[{"id":"2"}]}]}`
)

func classifyCoded(by NoBidBody, body []byte, codings ...string) exchange.Outcome {
	s := newSSP(options(func(o *Options) { o.NoBidBody = by }), &fakePool{})
	a := &exchange.Response{Status: 200, Body: body}
	for _, c := range codings {
		a.Fields = append(a.Fields, "content-encoding: "+c+"\r\n"...)
	}
	return s.classify(&Request{Method: exchange.GET}, a)
}

// A compressed no-bid that counted as an ad would end the waterfall.
func TestCompressedNoBidIsANoBid(t *testing.T) {
	blanks := strings.Repeat(" ", maxScan-len(noAdVAST))
	for _, c := range []struct {
		by   NoBidBody
		body string
		want exchange.Outcome
	}{
		{NoBidVAST, noAdVAST, exchange.NoBid},
		{NoBidVAST, adVAST, exchange.Fill},
		{NoBidOpenRTB, noBidJSON, exchange.NoBid},
		{NoBidOpenRTB, bidJSON, exchange.Fill},
		{"", noBidJSON, exchange.Fill},
		{NoBidVAST, noAdVAST + blanks, exchange.NoBid},
		{NoBidVAST, noAdVAST + blanks + " ", exchange.Fill},
		{NoBidVAST, "", exchange.NoBid},
	} {
		coded := gzipped(c.body)
		testsupport.MustTrue(t, len(coded) <= maxCodedScan, "%d bytes are %d compressed", len(c.body), len(coded))
		before := bytes.Clone(coded)
		for _, coding := range []string{"gzip", "X-GZIP", "Gzip"} { // decoders are reused
			testsupport.Equal(t, classifyCoded(c.by, coded, coding), c.want, "%.60[2]s by %[3]v in %[4]s is %[1]v", c.body, c.by, coding)
		}
		testsupport.MustTrue(t, bytes.Equal(coded, before), "the search changed the body")
		// A body that is cut is unreadable. Without its checksum alone, it may still be an ad for a lenient client.
		short, long := exchange.Unreadable, exchange.Fill
		if c.by == "" {
			short = exchange.Fill
		} else if c.body == "" {
			long = exchange.Unreadable
		}
		testsupport.Equal(t, classifyCoded(c.by, coded[:1], "gzip"), short, "the first byte of %.60[2]s is %[1]v", c.body)
		testsupport.Equal(t, classifyCoded(c.by, coded[:len(coded)-1], "gzip"), long, "all bytes but one of %.60[2]s are %[1]v", c.body)
		if len(coded) < 100 {
			testsupport.Equal(t, classifyCoded(c.by, coded[:len(coded)/2], "gzip"), short, "the first half of %.60[2]s is %[1]v", c.body)
		}
	}
}

func TestBodiesThatAreNotDecoded(t *testing.T) {
	twice := gzipped(string(gzipped(noBidJSON)))
	noise := make([]byte, 3*maxCodedScan)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	wrong := gzipped(noBidJSON)
	wrong[len(wrong)-5] ^= 1
	for _, c := range []struct {
		name    string
		body    []byte
		codings []string
		want    exchange.Outcome
	}{
		{"another coding", []byte(noBidJSON), []string{"br"}, exchange.Fill},
		{"no coding's name", []byte(noBidJSON), []string{""}, exchange.Fill},
		{"two codings in one field", twice, []string{"gzip, gzip"}, exchange.Fill},
		{"two codings in two fields", twice, []string{"gzip", "gzip"}, exchange.Fill},
		{"a coding and identity", gzipped(noBidJSON), []string{"gzip", "identity"}, exchange.Fill},
		{"larger than the decoding limit", gzipped(noBidJSON + base64.StdEncoding.EncodeToString(noise)), []string{"gzip"}, exchange.Fill},
		{"no coding at all", []byte(noBidJSON), []string{"gzip"}, exchange.Unreadable},
		{"bytes after the end", append(gzipped(noBidJSON), "x"...), []string{"gzip"}, exchange.Fill},
		{"a wrong checksum", wrong, []string{"gzip"}, exchange.Fill},
	} {
		got := classifyCoded(NoBidOpenRTB, c.body, c.codings...)
		testsupport.True(t, got == c.want, "%s: %v, want %v", c.name, got, c.want)
	}
	members := append(gzipped(`{"id":"1",`), gzipped(`"seatbid":[]}`)...)
	testsupport.Equal(t, classifyCoded(NoBidOpenRTB, members, "gzip"), exchange.NoBid, "two members of gzip: %v, want no_bid")
}

// Node's encoder is the C library that servers use.
func TestNoBidsCompressedByNode(t *testing.T) {
	out, err := exec.Command(testsupport.Needs(t, "nodejs", "node"), "-e", `
for (const text of process.argv.slice(1)) for (const level of [0, 1, 6, 9])
  console.log(require("zlib").gzipSync(text, {level}).toString("base64"));`, noBidJSON, bidJSON).Output()
	testsupport.NoError(t, err)
	lines := strings.Fields(string(out))
	testsupport.MustTrue(t, len(lines) == 8, "node printed %s", out)
	for i, line := range lines {
		body, err := base64.StdEncoding.DecodeString(line)
		testsupport.NoError(t, err)
		want := exchange.NoBid
		if i >= len(lines)/2 {
			want = exchange.Fill
		}
		testsupport.Equal(t, classifyCoded(NoBidOpenRTB, body, "gzip"), want, "%[2]s: %[1]v", line)
	}
}

// FuzzCoded classifies any bytes as a compressed body. It also compares the result for a compressed
// body with that for the body itself.
func FuzzCoded(f *testing.F) {
	f.Add(gzipped(noAdVAST), []byte(bidJSON))
	for _, body := range hostileBodies(f) {
		f.Add(body, []byte(noAdVAST))
	}
	gzip := []byte("gzip")
	f.Fuzz(func(t *testing.T, coded, body []byte) {
		before := bytes.Clone(coded)
		NoBidVAST.searchCoded(gzip, coded)
		testsupport.MustTrue(t, bytes.Equal(before, coded), "the search changed the body")
		for _, by := range []NoBidBody{NoBidVAST, NoBidOpenRTB} {
			coded := gzipped(string(body))
			want, _ := by.search(body)
			if len(coded) > maxCodedScan || len(body) > maxScan {
				want = exchange.Fill
			}
			got, _ := by.searchCoded(gzip, coded)
			testsupport.MustTrue(t, got == want, "%q: %v, want %v", body, got, want)
		}
	})
}

// hostileBodies have at most maxCodedScan bytes, and cost a decoder the maximum for this size.
func hostileBodies(t testing.TB) map[string][]byte {
	empty := gzipped("")
	bomb := gzipped(strings.Repeat("\x00", 4<<20))
	return map[string][]byte{
		"a bomb":         bomb[:min(len(bomb), maxCodedScan)],
		"a bomb of zstd": append([]byte("\x28\xb5\x2f\xfd\x00\x68"), bytes.Repeat([]byte("\x02\x00\x10x"), 500)...), // 500 blocks of 128 KiB in a window of 8 MiB
		"tables of zstd": testsupport.ZstdOfTables(maxCodedScan),
		"tables":         testsupport.GzipOfTables(maxCodedScan),
		"members":        bytes.Repeat(empty, maxCodedScan/len(empty)),
	}
}
