package advice

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"adbuffer/internal/operate/admin"
	"adbuffer/internal/ssp/shaper"
)

// ShapePlan is what limits would keep of the fills of one or several SSPs.
type ShapePlan []shapedJSON

// shapedJSON is one SSP of plan --shape --json. Rates and limits are those of all replicas.
type shapedJSON struct {
	SSP      string        `json:"ssp"`
	State    string        `json:"state"` // off, cold, learning or paused
	DryRun   bool          `json:"dry_run"`
	Replicas int           `json:"replicas"`
	RPS      float64       `json:"rps"`  // of the last ten minutes
	Kept     []shaper.Kept `json:"kept"` // empty if nothing is known
	Advice   string        `json:"advice,omitempty"`
}

// ObserveShapes asks an admin listener what qps.shape measured, and plans with it for the SSPs, or only for the SSP that
// in names. It returns an error if nothing was measured.
func ObserveShapes(ctx context.Context, c *admin.Client, in Input) (ShapePlan, error) {
	if in.Replicas < 1 {
		return nil, fmt.Errorf("--replicas %d: must be at least 1", in.Replicas)
	}
	var v struct {
		Pools []struct {
			SSP   string `json:"ssp"`
			Shape *struct {
				State  string        `json:"state"`
				DryRun bool          `json:"dry_run"`
				Kept   []shaper.Kept `json:"kept"`
			} `json:"shape"`
		} `json:"pools"`
	}
	if err := getPools(ctx, c, &v); err != nil {
		return nil, err
	}
	var plan ShapePlan
	var unknown []string
	for _, p := range v.Pools {
		if in.SSP != "" && p.SSP != in.SSP {
			continue
		}
		s := shapedJSON{SSP: p.SSP, State: "off", Replicas: in.Replicas, Kept: []shaper.Kept{}}
		if p.Shape != nil {
			s.State, s.DryRun = p.Shape.State, p.Shape.DryRun
			s.Kept = append(s.Kept, p.Shape.Kept...)
		}
		for i := range s.Kept {
			k := &s.Kept[i]
			k.Limit *= float64(in.Replicas)
			s.RPS = k.Limit / k.Share
		}
		if s.Advice = s.advice(); s.Advice != "" {
			unknown = append(unknown, s.SSP+": "+s.Advice)
		}
		plan = append(plan, s)
	}
	switch {
	case len(plan) == 0:
		return nil, noSSP(c.URL(), in.SSP)
	case len(unknown) == len(plan):
		return nil, fmt.Errorf("%s: nothing was measured:\n%s", c.URL(), strings.Join(unknown, "\n"))
	}
	return plan, nil
}

// advice says why nothing was measured, and what to set; "" if something was.
func (s *shapedJSON) advice() string {
	switch {
	case len(s.Kept) > 0:
		return ""
	case s.State == "off":
		return "it has no qps.shape. Set qps.shape.keys to that on which the SSP's bids depend, and qps.shape.dry_run: true, which drops no more requests than now"
	case s.State != shaper.Cold.String():
		return "no requests arrived in the last ten minutes"
	case s.DryRun:
		return "the dry run has seen fewer than 100 fills. Let it go on"
	}
	return "qps.shape has seen fewer than 100 fills. Let it go on; with qps.shape.dry_run: true it learns faster, and the limit drops at random"
}

// WriteJSON prints the plan for programs.
func (plan ShapePlan) WriteJSON(w io.Writer) error { return writeJSON(w, map[string]any{"ssps": plan}) }

// Write prints the plan for people: a table for each SSP, and what the figures assume.
func (plan ShapePlan) Write(w io.Writer) {
	for i := range plan {
		s := &plan[i]
		if s.Advice != "" {
			fmt.Fprintf(w, "%s: %s\n\n", s.SSP, s.Advice)
			continue
		}
		how := "measured while qps.shape dropped requests"
		if s.DryRun {
			how = "measured in a dry run"
		}
		fmt.Fprintf(w, "%s: %s requests/s to %s in the last ten minutes; %s\n", s.SSP, Number(s.RPS), count(s.Replicas, "replica"), how)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintf(t, "limit\tof the requests\tfills kept\t95 %% interval\t\n")
		for _, k := range s.Kept {
			mark := ""
			if k.InForce {
				mark = "qps.limit"
			}
			fmt.Fprintf(t, "%s/s\t%s %%\t%.1f %%\t%.1f to %.1f %%\t%s\n", Number(k.Limit), Number(100*k.Share), 100*k.Estimate, 100*k.Low, 100*k.High, mark)
		}
		t.Flush()
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, assumptions)
}

const assumptions = `The figures are those of about the last hour. After a start they are too low for an hour, since they include the time
in which adbuffer learned; a dry run learns within minutes. They assume that the share of such requests that the SSP
fills does not depend on how many it gets: budgets that are spent early break this. Under a lower limit adbuffer
learns from fewer requests: in simulations it kept up to 7 points less than estimated from a dry run at a limit of
10 %, and up to 3 points less at 20 %. The bounds allow for that, the estimates do not. Retries and hedges use up a
part of the limit, and max_loss, if it is set, may drop more.
`
