package load

import (
	"fmt"
	"math"
)

// Size is a spread of sizes in bytes: either Constant, or lognormal from its
// median and 95th percentile. The zero value is no bytes at all.
type Size struct {
	Constant int `yaml:"constant"`
	P50      int `yaml:"p50"`
	P95      int `yaml:"p95"` // at least P50
	Max      int `yaml:"max"` // cuts the tail; 0 is 256 KiB
}

// maxSize is what adbuffer reads of a request body, by default.
const maxSize = 256 << 10

// Faults returns what makes s impossible, each with its key.
func (s Size) Faults() []string {
	var out []string
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, v := range []struct {
		key   string
		value int
	}{{"constant", s.Constant}, {"p50", s.P50}, {"p95", s.P95}, {"max", s.Max}} {
		if v.value < 0 || v.value > 64<<20 {
			bad("%s: %d: must be 0 to 67108864 bytes", v.key, v.value)
		}
	}
	if s.Constant != 0 && (s.P50 != 0 || s.P95 != 0) {
		bad("constant: %d: either constant, or p50 and p95", s.Constant)
	}
	if (s.P50 == 0) != (s.P95 == 0) {
		bad("p50: %d, p95: %d: a lognormal needs both", s.P50, s.P95)
	}
	if s.P95 != 0 && s.P95 < s.P50 {
		bad("p95: %d: must be at least p50 (%d)", s.P95, s.P50)
	}
	if s.Max != 0 && s.Max < s.P50 {
		bad("max: %d: must be at least p50 (%d)", s.Max, s.P50)
	}
	return out
}

// Zero says that there is no body.
func (s Size) Zero() bool { return s.Constant == 0 && s.P50 == 0 }

// At returns the size that a share q of the draws stays below, 0 < q < 1.
func (s Size) At(q float64) int {
	limit := s.Max
	if limit == 0 {
		limit = maxSize
	}
	if s.P50 == 0 {
		return min(s.Constant, limit)
	}
	const z95 = 1.6448536269514722
	sigma := math.Log(float64(s.P95)/float64(s.P50)) / z95
	z := math.Sqrt2 * math.Erfinv(2*q-1)
	return int(math.Min(float64(s.P50)*math.Exp(sigma*z), float64(limit)))
}
