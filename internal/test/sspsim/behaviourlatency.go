package sspsim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"time"
)

const (
	z95 = 1.645 // standard normal quantile of 0.95
	z99 = 2.326 // standard normal quantile of 0.99
)

// maxLatency bounds every latency that can be set or drawn.
const maxLatency = Duration(10 * time.Minute)

// Distribution is one distribution of latencies: either Constant, or lognormal from its median and
// 99th percentile. The zero value is no latency.
type Distribution struct {
	Constant Duration `json:"constant"`
	P50      Duration `json:"p50"`
	P99      Duration `json:"p99"` // at least P50
	// Max limits the values drawn from a lognormal; 0 is ten minutes.
	Max Duration `json:"max"`
}

// Latency is the time from the end of a request to the first byte of its response. With SlowShare
// above 0 it has two modes: that share of the requests draws from Slow instead.
type Latency struct {
	Distribution
	Slow      Distribution `json:"slow"`
	SlowShare float64      `json:"slow_share"`
	// Capacity is how many requests the SSP serves at this speed at once. If more are in flight when a request
	// begins, its latency is multiplied by their number divided by Capacity. 0 is no bound.
	Capacity int `json:"capacity"`
}

// slowed returns the latency of a request when inFlight requests, including this one, are in flight. d is its
// latency below Capacity.
func (l *Latency) slowed(d time.Duration, inFlight int64) time.Duration {
	if l.Capacity == 0 || inFlight <= int64(l.Capacity) {
		return d
	}
	return min(d*time.Duration(inFlight)/time.Duration(l.Capacity), time.Duration(maxLatency))
}

// Constant returns the latency d, without variation.
func Constant(d time.Duration) Latency {
	return Latency{Distribution: Distribution{Constant: Duration(d)}}
}

// Lognormal returns the lognormal latency with this median and 99th percentile.
func Lognormal(p50, p99 time.Duration) Latency {
	return Latency{Distribution: Distribution{P50: Duration(p50), P99: Duration(p99)}}
}

func (d Distribution) check(e *InvalidError, path string) {
	checkDistribution(e, path, "p99", d.Constant, d.P50, d.P99, d.Max, maxLatency)
}

// checkDistribution checks a Distribution or a Size. high is its upper quantile, with this key.
func checkDistribution[T int | Duration](e *InvalidError, path, key string, constant, p50, high, most, limit T) {
	within(e, path+".constant", constant, 0, limit)
	within(e, path+".p50", p50, 0, limit)
	within(e, path+"."+key, high, 0, limit)
	within(e, path+".max", most, 0, limit)
	if constant != 0 && (p50 != 0 || high != 0 || most != 0) {
		e.add(path, "constant %v stands alone, without p50, %s and max", constant, key)
	}
	if constant == 0 && (p50 == 0) != (high == 0) {
		e.add(path, "p50 %v and %s %v are set together or not at all", p50, key, high)
	}
	if p50 > high && high > 0 {
		e.add(path+"."+key, "%v is below p50 %v", high, p50)
	}
	if most != 0 && most < p50 {
		e.add(path+".max", "%v is below p50 %v", most, p50)
	}
}

func (l Latency) check(e *InvalidError, path string) {
	l.Distribution.check(e, path)
	l.Slow.check(e, path+".slow")
	within(e, path+".slow_share", l.SlowShare, 0, 1)
	within(e, path+".capacity", l.Capacity, 0, 1<<20)
	if l.SlowShare == 0 && l.Slow != (Distribution{}) {
		e.add(path+".slow", "is never drawn while slow_share is 0")
	}
}

// at returns the value z standard deviations above the median.
func (d *Distribution) at(z float64) Duration {
	return lognormal(d.Constant, d.P50, d.P99, d.Max, maxLatency, z/z99)
}

// lognormal returns a value of a Distribution or a Size. z is 0 for the median p50, and 1 for the upper quantile
// high.
func lognormal[T int | Duration](constant, p50, high, most, limit T, z float64) T {
	if p50 == 0 {
		return constant
	}
	return T(min(float64(p50)*math.Pow(float64(high)/float64(p50), z), float64(cmp.Or(most, limit))))
}

func (l *Latency) draw(r *rand.Rand) time.Duration {
	d := &l.Distribution
	if l.SlowShare > 0 && r.Float64() < l.SlowShare {
		d = &l.Slow
	}
	if d.P50 == 0 {
		return time.Duration(d.Constant)
	}
	return time.Duration(d.at(r.NormFloat64()))
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

// At returns the size below which a share q of the draws lies, 0 < q < 1.
func (s Size) At(q float64) int { return s.at(math.Sqrt2 * math.Erfinv(2*q-1)) }

// at returns the value z standard deviations above the median.
func (s *Size) at(z float64) int {
	return lognormal(s.Constant, s.P50, s.P95, s.Max, maxBodyBytes, z/z95)
}

func (s *Size) draw(r *rand.Rand) int {
	if s.P50 == 0 {
		return s.Constant
	}
	return s.at(r.NormFloat64())
}

func (s Size) check(e *InvalidError, path string) {
	checkDistribution(e, path, "p95", s.Constant, s.P50, s.P95, s.Max, maxBodyBytes)
}
