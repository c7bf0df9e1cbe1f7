package sspsim

import (
	"math"
	"math/rand/v2"
	"time"
)

const (
	z95 = 1.645 // standard normal quantile of 0.95
	z99 = 2.326 // the same for 0.99
)

// maxLatency bounds every latency that can be set or drawn.
const maxLatency = 10 * time.Minute

// Distribution is one distribution of latencies: either Constant, or lognormal from its median and
// 99th percentile. The zero value is no latency.
type Distribution struct {
	Constant time.Duration `json:"constant"`
	P50      time.Duration `json:"p50"`
	P99      time.Duration `json:"p99"` // at least P50
	// Max limits the values drawn from a lognormal; 0 is ten minutes.
	Max time.Duration `json:"max"`
}

// Latency is the time from the end of a request to the first byte of its response. With SlowShare
// above 0 it has two modes: that share of the requests draws from Slow instead.
type Latency struct {
	Distribution
	Slow      Distribution `json:"slow"`
	SlowShare float64      `json:"slow_share"`
}

// Constant returns the latency d, without variation.
func Constant(d time.Duration) Latency { return Latency{Distribution: Distribution{Constant: d}} }

// Lognormal returns the lognormal latency with this median and 99th percentile.
func Lognormal(p50, p99 time.Duration) Latency {
	return Latency{Distribution: Distribution{P50: p50, P99: p99}}
}

func (d Distribution) check(c *checker, path string) {
	c.duration(path+".constant", d.Constant, maxLatency)
	c.duration(path+".p50", d.P50, maxLatency)
	c.duration(path+".p99", d.P99, maxLatency)
	c.duration(path+".max", d.Max, maxLatency)
	if d.Constant != 0 && (d.P50 != 0 || d.P99 != 0 || d.Max != 0) {
		c.add(path, "constant %v stands alone, without p50, p99 and max", d.Constant)
	}
	if d.Constant == 0 && (d.P50 == 0) != (d.P99 == 0) {
		c.add(path, "p50 %v and p99 %v are set together or not at all", d.P50, d.P99)
	}
	if d.P50 > d.P99 && d.P99 > 0 {
		c.add(path+".p99", "%v is below p50 %v", d.P99, d.P50)
	}
	if d.Max != 0 && d.Max < d.P50 {
		c.add(path+".max", "%v is below p50 %v", d.Max, d.P50)
	}
}

func (l Latency) check(c *checker, path string) {
	l.Distribution.check(c, path)
	l.Slow.check(c, path+".slow")
	if !(l.SlowShare >= 0 && l.SlowShare <= 1) {
		c.add(path+".slow_share", "%v is not within 0 to 1", l.SlowShare)
	}
	if l.SlowShare == 0 && l.Slow != (Distribution{}) {
		c.add(path+".slow", "is never drawn while slow_share is 0")
	}
}

// sampler draws from a constant or from a lognormal cut at max.
type sampler struct {
	constant  float64
	mu, sigma float64 // of the logarithm
	max       float64 // 0: constant, the other fields are unused
}

// newLognormal returns the sampler with this median and this quantile, which is z standard
// deviations above it.
func newLognormal(median, quantile, z, max float64) sampler {
	return sampler{mu: math.Log(median), sigma: math.Log(quantile/median) / z, max: max}
}

func (s *sampler) draw(r *rand.Rand) float64 {
	if s.max == 0 {
		return s.constant
	}
	return s.at(r.NormFloat64())
}

// at returns the value z standard deviations above the median.
func (s *sampler) at(z float64) float64 {
	if s.max == 0 {
		return s.constant
	}
	return min(math.Exp(s.mu+s.sigma*z), s.max)
}

func (d Distribution) sampler() sampler {
	if d.P50 == 0 {
		return sampler{constant: float64(d.Constant)}
	}
	limit := d.Max
	if limit == 0 {
		limit = maxLatency
	}
	return newLognormal(float64(d.P50), float64(d.P99), z99, float64(limit))
}

// latencySampler draws latencies of one or two modes.
type latencySampler struct {
	fast, slow sampler
	slowShare  float64
}

func (l Latency) sampler() latencySampler {
	return latencySampler{fast: l.Distribution.sampler(), slow: l.Slow.sampler(), slowShare: l.SlowShare}
}

func (l *latencySampler) draw(r *rand.Rand) time.Duration {
	if l.slowShare > 0 && r.Float64() < l.slowShare {
		return time.Duration(l.slow.draw(r))
	}
	return time.Duration(l.fast.draw(r))
}

// maxBodyBytes bounds every body that can be set or drawn.
const maxBodyBytes = 64 << 20

// Size is the distribution of body sizes, in bytes: either Constant, or lognormal from its median
// and 95th percentile. The zero value is the smallest document.
type Size struct {
	Constant int `json:"constant"`
	P50      int `json:"p50"`
	P95      int `json:"p95"` // at least P50
	// Max limits the values drawn from a lognormal; 0 is 64 MiB.
	Max int `json:"max"`
}

// Mistakes returns what is wrong with s, each with its path below path.
func (s Size) Mistakes(path string) []string {
	var c checker
	s.check(&c, path)
	return c.mistakes
}

// At returns the size that a share q of the draws stays below, 0 < q < 1.
func (s Size) At(q float64) int {
	d := s.sampler()
	return int(d.at(math.Sqrt2 * math.Erfinv(2*q-1)))
}

func (s Size) check(c *checker, path string) {
	c.within(path+".constant", s.Constant, 0, maxBodyBytes)
	c.within(path+".p50", s.P50, 0, maxBodyBytes)
	c.within(path+".p95", s.P95, 0, maxBodyBytes)
	c.within(path+".max", s.Max, 0, maxBodyBytes)
	if s.Constant != 0 && (s.P50 != 0 || s.P95 != 0 || s.Max != 0) {
		c.add(path, "constant %d stands alone, without p50, p95 and max", s.Constant)
	}
	if s.Constant == 0 && (s.P50 == 0) != (s.P95 == 0) {
		c.add(path, "p50 %d and p95 %d are set together or not at all", s.P50, s.P95)
	}
	if s.P50 > s.P95 && s.P95 > 0 {
		c.add(path+".p95", "%d is below p50 %d", s.P95, s.P50)
	}
	if s.Max != 0 && s.Max < s.P50 {
		c.add(path+".max", "%d is below p50 %d", s.Max, s.P50)
	}
}

func (s Size) sampler() sampler {
	if s.P50 == 0 {
		return sampler{constant: float64(s.Constant)}
	}
	limit := s.Max
	if limit == 0 {
		limit = maxBodyBytes
	}
	return newLognormal(float64(s.P50), float64(s.P95), z95, float64(limit))
}
