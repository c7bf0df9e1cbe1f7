package openrtb

import (
	"bytes"
	"encoding/json"
	"testing"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/testsupport"
)

// BenchmarkCompress compares the content codings on all bid requests of the samples that are long enough for
// compress.min_bytes: the CPU time of a request, and its coded bytes for each 100 bytes.
func BenchmarkCompress(b *testing.B) {
	var requests [][]byte
	for _, s := range readSamples(b) {
		var compact bytes.Buffer
		if json.Compact(&compact, s.Request) == nil && compact.Len() >= 1024 {
			requests = append(requests, compact.Bytes())
		}
	}
	for _, coding := range []ssp.Coding{ssp.CodingGzip, ssp.CodingZstd} {
		b.Run(string(coding), func(b *testing.B) {
			var dst []byte
			plain, coded, n := 0, 0, 0
			took := testsupport.ThreadTime(func() {
				for b.Loop() {
					for _, request := range requests {
						out, _ := coding.Append(dst[:0], request)
						dst, plain, coded, n = out, plain+len(request), coded+len(out), n+1
					}
				}
			})
			b.ReportMetric(took.Seconds()*1e6/float64(n), "cpu-us/request")
			b.ReportMetric(100*float64(coded)/float64(plain), "%coded")
			b.ReportMetric(float64(plain)/float64(n), "bytes/request")
			b.ReportMetric(float64(len(requests)), "requests")
		})
	}
}
