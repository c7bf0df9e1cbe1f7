package capacity

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Bounds of the inputs. They are far beyond any ad traffic, and keep every load
// above 0, every sum of a plan within an int and every time within a Duration.
const (
	minRate     = 0.001
	maxRate     = 1e9
	maxLoad     = MaxPlaces / 2 // leaves Places room for any share
	maxReplicas = 1_000_000
	maxHold     = time.Hour
	maxCount    = 1_000_000_000 // connections, descriptors, streams, addresses
)

// InputError is one number of a [PlanInput] that cannot be.
type InputError struct {
	Name  string // as in PlanInput: "rps", "waiting-share"
	Value string // what was given
	Rule  string // what it must be, with the reason where it is not plain
}

func (e *InputError) Error() string {
	return e.Name + " " + e.Value + ": " + e.Rule
}

// faults collects every InputError of one PlanInput.
type faults []error

func (f *faults) add(name, value, rule string, args ...any) {
	*f = append(*f, &InputError{Name: name, Value: value, Rule: fmt.Sprintf(rule, args...)})
}

// validate returns all faults at once, joined, or nil.
func (in PlanInput) validate() error {
	var f faults
	rateOK := f.rate("rps", in.Rate)
	replicasOK := f.count("replicas", in.Replicas, 1, maxReplicas)
	p50OK := f.hold("p50", in.P50)
	p99OK := f.hold("p99", in.P99)
	if p50OK && p99OK && f.quantiles(in.P50, in.P99) && rateOK && replicasOK {
		f.load(in)
	}

	// Written so that NaN fails it too.
	if !(in.WaitingShare > 0 && in.WaitingShare < 1) {
		f.add("waiting-share", number(in.WaitingShare),
			"must be above 0 and below 1, for example 0.03: no pool is so large that nobody ever waits")
	}
	if in.SlowHold != 0 {
		f.hold("slow-hold", in.SlowHold)
	}
	f.count("streams", in.Streams, 1, maxCount)
	f.count("client-connections", in.ClientConns, 0, maxCount)
	f.count("file-descriptors", in.FileDescriptors, 1, maxCount)
	f.count("ports", in.PortsPerAddress, 1, 65535)
	f.count("source-addresses", in.SourceAddresses, 0, maxCount)
	f.count("ssp-addresses", in.SSPAddresses, 1, maxCount)
	if in.MaxAge != 0 && in.MaxAge < time.Second {
		f.add("max-age", in.MaxAge.String(), "must be 0 (no limit) or at least 1s")
	}
	return errors.Join(f...)
}

func (f *faults) rate(name string, v float64) bool {
	if v >= minRate && v <= maxRate {
		return true
	}
	f.add(name, number(v), "must be between %s and %s requests per second", number(minRate), number(maxRate))
	return false
}

func (f *faults) hold(name string, v time.Duration) bool {
	if v > 0 && v <= maxHold {
		return true
	}
	f.add(name, v.String(), "must be above 0 and at most %v", maxHold)
	return false
}

func (f *faults) count(name string, v, least, most int) bool {
	if v >= least && v <= most {
		return true
	}
	f.add(name, strconv.Itoa(v), "must be between %d and %d", least, most)
	return false
}

// quantiles refuses a p99 that no lognormal has, or that says nothing.
func (f *faults) quantiles(p50, p99 time.Duration) bool {
	if p99 < p50 {
		f.add("p99", p99.String(), "must not be below p50, which is %v", p50)
		return false
	}
	// From σ = 2·2.326 on, a p99 of about 50,000 × p50, the mean lies above p99.
	if mean := LognormalMean(p50, p99); mean > p99 {
		f.add("p99", p99.String(), "is too far above p50, which is %v: a lognormal with both has its mean, %v, above its p99", p50, mean)
		return false
	}
	return true
}

// load refuses what one replica cannot carry. Its numbers are valid one by one.
func (f *faults) load(in PlanInput) {
	mean := LognormalMean(in.P50, in.P99)
	if load := Load(in.Rate/float64(in.Replicas), mean); load > maxLoad {
		f.add("replicas", strconv.Itoa(in.Replicas),
			"are too few: each would have %.0f requests in flight (%s rps, held %v on average), and a plan ends at %d",
			load, number(in.Rate), mean, maxLoad)
	}
}

// number prints v without exponent where that is readable.
func number(v float64) string {
	if math.Abs(v) < 1e15 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
