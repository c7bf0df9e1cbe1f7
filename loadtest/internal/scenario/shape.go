package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

// Shape is what qps.shape must achieve at an SSP with response.fill_by, whose parameters have the values of the requests'
// segments.
type Shape struct {
	SSP       string
	Limit     float64 // the SSP's qps.limit
	Burst     float64 // its qps.burst
	Fills     float64 // lowest share of the fills that the best requests bring, in the recorded phases
	Simulated string  // what the simulation of qps.shape achieves
}

// learning is how long a new shaper learns before its fills are judged.
const learning = 2 * time.Minute

// lossOf returns the low bound, the estimate and the high bound of the loss that adbuffer reports for the last hour.
// They are 0 if it reports none yet.
func lossOf(r *rig.Rig, a *rig.Adbuffer, ssp string) (loss [3]float64) {
	r.Check(a.Series(func(name, labels string, v float64) {
		for i, bound := range [3]string{"low", "estimate", "high"} {
			if name == "adbuffer_shape_loss_ratio" && strings.Contains(labels, fmt.Sprintf("ssp=%q", ssp)) && strings.Contains(labels, fmt.Sprintf("bound=%q", bound)) {
				loss[i] = v
			}
		}
	}))
	return loss
}

// best returns how many fills a request brings on average if only the given share of all requests is sent, those with
// the highest rates.
func best(segments []load.Segment, share float64) (fills float64) {
	for _, s := range slices.SortedFunc(slices.Values(segments), func(a, b load.Segment) int { return cmp.Compare(b.Rate, a.Rate) }) {
		n := min(s.Share, share)
		fills, share = fills+n*s.Rate, share-n
	}
	return fills
}

// judge compares what the shaper of an SSP achieved with what the generator knows. perSecond is the largest number of
// requests that the SSP got in a second, and loss what adbuffer reports.
func (e *Shape) judge(rep *results.Report, p load.Plan, f *rig.Figures, perSecond uint64, loss [3]float64) {
	doubts := f.Doubts
	var fills, lost float64
	var learned time.Duration
	for i, phase := range f.Phases {
		fills, lost = fills+float64(phase.Statuses[200]), lost+phase.Shaped
		if p.Phases[i].Unrecorded {
			learned += p.Phases[i].Duration
		}
	}
	if learned < learning {
		doubts = append(slices.Clone(doubts), fmt.Sprintf("the shaper learned for %v before its fills were judged, and needs %v", learned, learning))
	}
	sent := min(1, e.Limit*f.Seconds/float64(max(f.Offered, 1)))
	got, oracle, truth := float64(f.Statuses[200]), float64(f.Offered)*best(p.Segments(), sent), lost/max(lost+fills, 1)
	rep.Promise(fmt.Sprintf("a limit of %s of the requests keeps at least %.0f %% of the fills of the best ones", results.Percent(sent), 100*e.Fills),
		got >= e.Fills*oracle, doubts, "%v of %v fills, %s; dropping at random %s. The simulation: %v.",
		got, oracle, results.Percent(got/oracle), results.Percent(sent*f.Fills/oracle), e.Simulated)
	rep.Promise("in no second the SSP gets more requests than limit and burst", float64(perSecond) <= e.Limit+e.Burst, f.Doubts,
		"At most %v, and %v are allowed.", perSecond, e.Limit+e.Burst)
	rep.Promise("the interval of the reported loss holds the true one, as 95 % of them do", loss[0] <= truth && truth <= loss[2], f.Doubts,
		"Reported %s (%s to %s), true %s: %v of %v fills.", results.Percent(loss[1]), results.Percent(loss[0]), results.Percent(loss[2]), results.Percent(truth), lost, lost+fills)
}
