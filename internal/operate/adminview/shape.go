package adminview

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"adbuffer/internal/ssp/shaper"
	"adbuffer/internal/ssp/ssp"
)

// shapeView is what qps.shape does for an SSP.
type shapeView struct {
	Text   string `json:"text"` // a sentence
	State  string `json:"state"`
	DryRun bool   `json:"dry_run,omitempty"`
	// The share of the fills that was lost in the last hour, and in the last ten minutes; nil while State is cold.
	*shapeLoss
	TenMinutes *shapeLoss   `json:"ten_minutes,omitempty"`
	Threshold  float64      `json:"threshold"`
	Explore    float64      `json:"explore"`
	Segments   int          `json:"segments"`
	Ranges     []shapeRange `json:"ranges"` // of the last hour
	// Kept is what other limits, and the limit in force, would keep of the fills; absent while State is cold.
	Kept []shaper.Kept `json:"kept,omitempty"`
}

// shapeLoss is a share of the fills, with the bounds of its 95 % interval.
type shapeLoss struct {
	Low      float64 `json:"loss_low"`
	Estimate float64 `json:"loss"`
	High     float64 `json:"loss_high"`
}

// shapeRange is what became of the requests whose score is in one of eight ranges.
type shapeRange struct {
	From     float64 `json:"from"` // the lowest score
	Arrivals float64 `json:"arrivals"`
	Sent     float64 `json:"sent"`
	Expected float64 `json:"expected"` // fills of the sent requests, by their scores
	Fills    float64 `json:"fills"`
}

// shapeOf returns the view of an SSP's shaper, nil if the SSP has none.
func shapeOf(s *ssp.SSP) *shapeView {
	r, enforced, ok := s.ShapeReport()
	if !ok {
		return nil
	}
	return viewOf(&r, enforced)
}

// viewOf returns the view of a report.
func viewOf(r *shaper.Report, enforced bool) *shapeView {
	v := &shapeView{Text: shapeText(r, enforced), State: r.State.String(), DryRun: !enforced, Threshold: r.Threshold, Explore: r.Explore, Segments: r.Segments, Kept: r.Kept}
	if r.State != shaper.Cold {
		v.shapeLoss = &shapeLoss{r.Hour.Low, r.Hour.Estimate, r.Hour.High}
		v.TenMinutes = &shapeLoss{r.TenMinutes.Low, r.TenMinutes.Estimate, r.TenMinutes.High}
	}
	for _, x := range r.Ranges {
		v.Ranges = append(v.Ranges, shapeRange(x))
	}
	return v
}

// shapeText returns a sentence for the page: how many requests a second qps.shape drops, and the share of the fills
// that was lost with them.
func shapeText(r *shaper.Report, enforced bool) string {
	text, none, lost, hour, recent := "qps.shape drops", "it has lost no fill", "lost", &r.Hour, &r.TenMinutes
	if !enforced {
		text, none, lost = "A dry run of qps.shape would drop", "it would have lost no fill", "it would have lost"
	}
	seconds := max(1, recent.Time.Seconds())
	text += fmt.Sprintf(" %s of %s/s; ", perSecond(recent.Dropped/seconds), perSecond(recent.Arrivals/seconds))
	switch {
	case r.State == shaper.Cold:
		text += "it has seen fewer than 100 fills, so the loss is not known yet"
	case hour.Dropped == 0:
		text += none + " in the last hour"
	default:
		text += fmt.Sprintf("%s %.1f %% of the fills (%.1f to %.1f) in the last hour; at random %.0f %%", lost, 100*hour.Estimate, 100*hour.Low, 100*hour.High, 100*hour.Dropped/hour.Arrivals)
	}
	if r.Paused {
		text += "; no-bids teach it nothing until the next fill, since the SSP gave no fill where 20 were expected"
	}
	return text
}

// perSecond writes a rate, with a decimal if it is below 10.
func perSecond(rate float64) string {
	if rate < 10 {
		return strconv.FormatFloat(math.Round(10*rate)/10, 'f', -1, 64)
	}
	return fmt.Sprintf("%.0f", rate)
}

// shapingOf says what a shaper knows of each prefix of a request's segment, and what it would do with the request.
func shapingOf(s *ssp.Shaping) (all []string) {
	for i, k := range s.Keys {
		_, name, _ := strings.Cut(k.Name, ":")
		text := fmt.Sprintf("%s is %s", k.Name, shown(name, k.Value))
		if k.Value == "" {
			text = k.Name + " is missing"
		}
		switch {
		case i >= len(s.Prefixes):
			text += ": not counted, since nothing is known of the values before it"
		case s.Prefixes[i].Known:
			p := &s.Prefixes[i]
			text += fmt.Sprintf(": %.4g outcomes (N), %.4g fills (F), young values fill %.3g times as often as their parents (ρ), rate of fills %.3g (p)", p.Sent, p.Fills, p.Worth, p.Mean)
		default:
			p := &s.Prefixes[i]
			text += fmt.Sprintf(": not known yet, young values fill %.3g times as often as their parents (ρ), rate of fills %.3g (p)", p.Worth, p.Mean)
		}
		all = append(all, text)
	}
	text := fmt.Sprintf("score %.3g, threshold %.3g: ", s.Score, s.Threshold)
	if s.Chance == 1 {
		return append(all, text+"passes")
	}
	if !s.Enforced {
		text += "without dry_run "
	}
	if s.Chance > 0 {
		text += fmt.Sprintf("passes with probability %.3g, otherwise ", s.Chance)
	}
	return append(all, text+fmt.Sprintf("dropped, unless explored with probability %.3g", s.Explore))
}
