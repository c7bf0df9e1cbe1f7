package reports

import (
	"fmt"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/engine"
)

// realistic is an SSP as they usually are: most answers are no-bids, and the
// latency is lognormal.
func realistic(p50, p99 time.Duration) sspsim.Behaviour {
	return sspsim.Behaviour{
		Latency:  sspsim.Lognormal(p50, p99),
		Response: sspsim.Response{NoBid: sspsim.Share(0.85), Size: sspsim.Size{P50: 1500, P95: 8000}, Echo: true},
	}
}

// bid returns bid requests to path, named name.
func bid(name, path string) load.Template {
	r := engine.Presets()["rtb"]
	t := r.Template()
	t.Name, t.Path = name, path+"?cb="+load.Number
	return t
}

// page returns GETs to path, named name.
func page(name, path string) load.Template {
	r := engine.Presets()["ad"]
	t := r.Template()
	t.Name, t.Path = name, path+"?cb="+load.Number+"&pub=123456&site=publisher.example&slot=top-banner&w=300&h=250"
	return t
}

// failures writes the errors of s for people.
func failures(s load.Summary) string {
	if s.Failed == 0 {
		return "none failed"
	}
	return fmt.Sprintf("%d of %d failed (%v)", s.Failed, s.Answered+s.Failed, s.Errors)
}

// timeline draws the run second by second.
func timeline(title string, ticks []load.Tick) results.Chart {
	c := results.Chart{Title: title, Kind: "line", X: "seconds", Y: "answers/s, ms", LogY: true, Series: []results.Series{{Name: "answers/s"}, {Name: "p50 ms"}, {Name: "p99 ms"}}}
	last := 0.0
	for _, t := range ticks {
		if t.Answered == 0 || t.Second <= last {
			continue
		}
		rate := float64(t.Answered) / (t.Second - last)
		last = t.Second
		for i, y := range []float64{rate, t.P50, t.P99} {
			c.Series[i].Points = append(c.Series[i].Points, results.Point{X: t.Second, Y: y})
		}
	}
	return c
}
