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
	maxLoad     = maxPlaces / 2 // so that Places finds a number for any share
	maxReplicas = 1_000_000
	maxHold     = time.Hour
	maxCount    = 1_000_000_000 // connections, descriptors, streams, addresses
)

// InputError is an invalid number of a [PlanInput].
type InputError struct {
	Name  string // as in PlanInput: "rps", "waiting-share"
	Value string // the number
	Rule  string // the rule for the number, with the reason if it is not obvious
}

func (e *InputError) Error() string {
	return e.Name + " " + e.Value + ": " + e.Rule
}

// inputErrors collects the InputErrors of one PlanInput.
type inputErrors []error

func (e *inputErrors) add(name, value, rule string, args ...any) {
	*e = append(*e, &InputError{Name: name, Value: value, Rule: fmt.Sprintf(rule, args...)})
}

// validate returns all InputErrors, joined, or nil.
func (in PlanInput) validate() error {
	var e inputErrors
	rateOK := e.rate("rps", in.Rate)
	replicasOK := e.count("replicas", in.Replicas, 1, maxReplicas)
	p50OK := e.hold("p50", in.P50)
	p99OK := e.hold("p99", in.P99)
	if p50OK && p99OK && e.quantiles(in.P50, in.P99) && rateOK && replicasOK {
		e.load(in)
	}

	// NaN must fail this too.
	if !(in.WaitingShare > 0 && in.WaitingShare < 1) {
		e.add("waiting-share", FormatNumber(in.WaitingShare),
			"must be above 0 and below 1, for example 0.03: no pool is so large that no request ever waits")
	}
	if in.SlowHold != 0 {
		e.hold("slow-hold", in.SlowHold)
	}
	e.count("peak", in.Peak, 0, maxPlaces/2)
	e.count("streams", in.Streams, 1, maxCount)
	e.count("client-connections", in.ClientConns, 0, maxCount)
	e.count("file-descriptors", in.FileDescriptors, 1, maxCount)
	e.count("ports", in.PortsPerAddress, 1, 65535)
	e.count("source-addresses", in.SourceAddresses, 0, maxCount)
	e.count("local-addresses", in.LocalAddresses, 1, maxCount)
	e.count("ssp-addresses", in.SSPAddresses, 1, maxCount)
	if in.MaxAge != 0 && in.MaxAge < time.Second {
		e.add("max-age", in.MaxAge.String(), "must be 0 (no limit) or at least 1s")
	}
	return errors.Join(e...)
}

func (e *inputErrors) rate(name string, v float64) bool {
	if v >= minRate && v <= maxRate {
		return true
	}
	e.add(name, FormatNumber(v), "must be between %s and %s requests per second", FormatNumber(minRate), FormatNumber(maxRate))
	return false
}

func (e *inputErrors) hold(name string, v time.Duration) bool {
	if v > 0 && v <= maxHold {
		return true
	}
	e.add(name, v.String(), "must be above 0 and at most %v", maxHold)
	return false
}

func (e *inputErrors) count(name string, v, least, most int) bool {
	if v >= least && v <= most {
		return true
	}
	e.add(name, strconv.Itoa(v), "must be between %d and %d", least, most)
	return false
}

// quantiles refuses a p99 that is below p50, or so far above it that the mean is meaningless.
func (e *inputErrors) quantiles(p50, p99 time.Duration) bool {
	if p99 < p50 {
		e.add("p99", p99.String(), "must not be below p50, which is %v", p50)
		return false
	}
	// From σ = 2·2.326 on, a p99 of about 50,000 × p50, the mean is above p99.
	if mean := lognormalMean(p50, p99); mean > p99 {
		e.add("p99", p99.String(), "is too far above p50, which is %v: a lognormal with both has its mean, %v, above its p99", p50, mean)
		return false
	}
	return true
}

// load refuses a load that is too large for one replica. Each number is valid.
func (e *inputErrors) load(in PlanInput) {
	mean := lognormalMean(in.P50, in.P99)
	if load := Load(in.Rate/float64(in.Replicas), mean); load > maxLoad {
		e.add("replicas", strconv.Itoa(in.Replicas),
			"are too few: each would have %.0f requests in flight (%s rps, held %v on average), and a plan ends at %d",
			load, FormatNumber(in.Rate), mean, maxLoad)
	}
}

// FormatNumber formats v, without an exponent if that is readable.
func FormatNumber(v float64) string {
	if math.Abs(v) < 1e15 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
