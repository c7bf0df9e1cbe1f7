package replay

import (
	"math"
	"slices"
	"time"

	"adbuffer/internal/operate/advice"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/wire/exchange"
)

// window is the number of minutes over which load is averaged, since one minute may have few sampled requests.
const window = 5

// average is what an SSP gets per second of a stratum: its share of the requests of the minutes around the stratum, at the
// rate of the stratum.
type average struct {
	rate, low float64 // requests, and the lower bound of their 95 % interval
	load      float64 // places in use
	margin    float64 // share of load: the half of its 95 % interval
}

// average returns what the SSP of t gets in stratum i. ok is false if the sample says too little of it.
func (r *replay) average(i int, t *sspTally) (a average, ok bool) {
	length := r.Strata[i].Length.Seconds()
	if length == 0 || length < 10 && len(r.Strata) > 1 {
		return a, false // a minute that has just begun
	}
	var seen, asked float64
	var judged, held weights
	for j := max(0, i-window/2); j <= min(len(r.Strata)-1, i+window/2); j++ {
		if s := &r.Strata[j]; len(s.Requests) > 0 {
			m := &t.minutes[j]
			seen, asked = seen+float64(s.Seen), asked+m.asked
			held.sum, held.squares = held.sum+m.held.sum, held.squares+m.held.squares
			judged.sum, judged.squares = judged.sum+r.judged[j].sum, judged.squares+r.judged[j].squares
		}
	}
	if asked == 0 {
		return a, false
	}
	perSecond := float64(r.Strata[i].Seen) / length
	low, _ := wilson(min(1, asked/seen), judged.requests())
	a = average{rate: perSecond * asked / seen, low: perSecond * low, load: perSecond * held.sum / seen}
	if held.sum > 0 {
		a.margin = z95 * math.Sqrt(held.squares) / held.sum
	}
	return a, true
}

// poolOf says whether the pool of a part of the new configuration has enough places for what t has in its busiest minute,
// and within which share of the needed places the truth is. The pool is full only if it is so within this margin. Requests
// that a qps limit refuses need no places.
func (r *replay) poolOf(p *reload.Part, t *sspTally) (fit *advice.Fit, margin float64) {
	limit, dryRun := limitOf(r.Then.Config, p.Config.Name)
	var busiest average
	low := math.Inf(-1)
	for i := range r.Strata {
		a, ok := r.average(i, t)
		if a.rate > limit && !dryRun {
			a.rate, a.load = limit, a.load*limit/a.rate
		}
		if ok && a.load > 0 && a.load*(1-a.margin) > low {
			busiest, low = a, a.load*(1-a.margin)
		}
	}
	if busiest.load == 0 {
		return nil, 0
	}
	o := p.SSP.Pool().Options()
	hold := time.Duration(busiest.load / busiest.rate * float64(time.Second))
	fit = advice.FitOf(busiest.rate, hold, r.protocolOf(p.Config.Name, &o), &o)
	fit.Full = fit.Full && int(math.Ceil(low)) >= fit.Places
	return fit, busiest.margin
}

// protocolOf returns the protocol that a pool with these options would speak, as far as it is known.
func (r *replay) protocolOf(ssp string, o *pool.Options) exchange.Protocol {
	if o.Protocol != exchange.Unknown {
		return o.Protocol
	}
	return r.Protocol(ssp)
}

// limitOf returns the qps limit of an SSP in cfg, or the share of one replica if replicas share the limit. +Inf stands for no
// limit. dryRun says whether the limit refuses nothing.
func limitOf(cfg *config.Config, ssp string) (limit float64, dryRun bool) {
	i := slices.IndexFunc(cfg.SSPs, func(s config.SSP) bool { return s.Name == ssp })
	if i < 0 || cfg.SSPs[i].QPS.Limit <= 0 {
		return math.Inf(1), false
	}
	limit = cfg.SSPs[i].QPS.Limit
	if cfg.SSPs[i].SharesLimit() {
		limit /= float64(max(1, cfg.Fleet.ExpectedReplicas))
	}
	return limit, cfg.SSPs[i].QPS.DryRun
}

// overLimit returns how many requests a second are over the qps limit that cfg has for the SSP, in the minutes in which the
// whole 95 % interval is over it, and how many are refused as far as the rates of all minutes tell.
func (r *replay) overLimit(cfg *config.Config, ssp string, t *sspTally, seconds float64) (over, refused float64) {
	limit, dryRun := limitOf(cfg, ssp)
	for i := range r.Strata {
		a, ok := r.average(i, t)
		excess := (a.rate - limit) * r.Strata[i].Length.Seconds() / seconds
		if ok && a.low > limit {
			over += excess
		}
		if ok && !dryRun {
			refused += max(0, excess)
		}
	}
	return over, refused
}
