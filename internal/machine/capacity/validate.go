package capacity

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Bounds of the inputs. They are far above any ad traffic. They keep each load above 0, each sum of
// a plan within an int, and each time within a Duration.
const (
	minRate     = 0.001
	maxRate     = 1e9
	maxLoad     = maxPlaces / 2 // so that Places finds a number for any waiting share
	maxReplicas = 1_000_000
	maxHold     = time.Hour
	maxCount    = 1_000_000_000 // connections, descriptors, streams, addresses
)

// inputErrors collects an error for each invalid number of one PlanInput. The error names the number's flag, and
// states the rule that the number breaks, with the reason if that is not obvious.
type inputErrors []error

// check adds an error unless ok, and returns ok.
func (e *inputErrors) check(ok bool, name string, value any, rule string, args ...any) bool {
	if !ok {
		*e = append(*e, fmt.Errorf("--%s %v: %s", name, value, fmt.Sprintf(rule, args...)))
	}
	return ok
}

func (e *inputErrors) hold(name string, v time.Duration) bool {
	return e.check(v > 0 && v <= maxHold, name, v, "must be above 0 and at most %v", maxHold)
}

func (e *inputErrors) count(name string, v, lowest, highest int) bool {
	return e.check(v >= lowest && v <= highest, name, v, "must be between %d and %d", lowest, highest)
}

// validate returns all errors, joined, or nil. NaN is invalid.
func (in PlanInput) validate() error {
	var e inputErrors
	rateOK := e.check(in.Rate >= minRate && in.Rate <= maxRate, "rps", FormatNumber(in.Rate),
		"must be between %s and %s requests per second", FormatNumber(minRate), FormatNumber(maxRate))
	replicasOK := e.count("replicas", in.Replicas, 1, maxReplicas)
	p50OK, p99OK := e.hold("p50", in.P50), e.hold("p99", in.P99)
	mean := lognormalMean(in.P50, in.P99)
	// From σ = 2·2.326 on, a p99 of about 50,000 × p50, the mean is above p99.
	if p50OK && p99OK && e.check(in.P99 >= in.P50, "p99", in.P99, "must not be below p50, which is %v", in.P50) &&
		e.check(mean <= in.P99, "p99", in.P99, "is too far above p50, which is %v: a lognormal with both has its mean, %v, above its p99", in.P50, mean) &&
		rateOK && replicasOK {
		load := Load(in.Rate/float64(in.Replicas), mean)
		e.check(load <= maxLoad, "replicas", in.Replicas, "are too few: each would have %.0f requests in flight (%s rps, held %v on average), and a plan ends at %d",
			load, FormatNumber(in.Rate), mean, maxLoad)
	}
	e.check(in.WaitingShare > 0 && in.WaitingShare < 1, "waiting", FormatNumber(in.WaitingShare),
		"must be above 0 and below 1, for example 0.03: no pool is so large that no request ever waits")
	if in.SlowHold != 0 {
		e.hold("slow", in.SlowHold)
	}
	e.count("peak", in.Peak, 0, maxPlaces/2)
	e.count("streams", in.Streams, 1, maxCount)
	e.count("file-descriptors", in.FileDescriptors, 1, maxCount)
	e.count("ports", in.PortsPerAddress, 1, 65535)
	e.count("source-addresses", in.SourceAddresses, 0, maxCount)
	e.count("local-addresses", in.LocalAddresses, 1, maxCount)
	e.count("ssp-addresses", in.SSPAddresses, 1, maxCount)
	e.check(in.MaxAge == 0 || in.MaxAge >= time.Second, "max-age", in.MaxAge, "must be 0 (no limit) or at least 1s")
	return errors.Join(e...)
}

// FormatNumber formats v, without an exponent if that is readable.
func FormatNumber(v float64) string {
	if math.Abs(v) < 1e15 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
