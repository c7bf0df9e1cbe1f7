package sizing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"adbuffer/internal/admin"
	"adbuffer/internal/pool"
)

// Observation is the load of one SSP, with its current limits.
type Observation struct {
	name, protocol string
	rate           float64       // requests per second, of all instances
	hold           time.Duration // mean
	instances      int
	conns          int           // max_conns
	own            int           // the places of a pool that sizes itself; 0 = it does not
	fullIn         time.Duration // 0 = not expected
	http2Conns     int           // max_http2_conns; 0 = unknown
	streams        int           // 0 = unknown
	depth          int           // pipeline_depth; 0 = unknown
	sources        int           // source_addresses; 0 = none, or unknown
	peak           int           // most places in use at once, in one instance; 0 = unknown
}

// Limits are the limits of a pool in force, as /pools shows them.
type Limits struct {
	MaxConns       int    `json:"max_conns"`
	MaxHTTP2Conns  int    `json:"max_http2_conns"`
	MinIdle        int    `json:"min_idle"`
	MaxIdle        int    `json:"max_idle"`
	IdleTimeout    string `json:"idle_timeout"`
	MaxAge         string `json:"max_age"`
	MaxRequests    int    `json:"max_requests_per_conn"`
	MaxPending     int    `json:"max_pending"`
	PendingTimeout string `json:"pending_timeout"`
	MaxDials       int    `json:"max_dials"`
	MaxStreams     int    `json:"max_streams_per_conn"`
	PipelineDepth  int    `json:"pipeline_depth"`
	Sources        int    `json:"source_addresses"` // how many
	MaxInFlight    int    `json:"max_in_flight"`
}

// errNeither is the error about a server that is unknown to Observe.
var errNeither = errors.New("is neither an adbuffer's admin listener nor a Prometheus")

// Observe asks an admin listener for the highest load of the last minutes, or a Prometheus that scrapes
// adbuffer for the highest load within over; 0 = the last 5 minutes. Only adbuffer has /pools, so
// its path shows which kind of server responds.
func Observe(ctx context.Context, c *admin.Client, over time.Duration) ([]Observation, error) {
	var v struct {
		Pools []struct {
			SSP      string    `json:"ssp"`
			Protocol string    `json:"protocol"`
			Need     pool.Need `json:"need"`
			Auto     struct {
				DryRun bool `json:"dry_run"`
				Limit  int  `json:"limit"`
			} `json:"auto"`
			FullIn float64 `json:"full_in_seconds"`
			Places int     `json:"places_limit"`
			Peak   float64 `json:"saturation_max"`
			Limits Limits  `json:"limits"`
		} `json:"pools"`
	}
	err := get(ctx, c, "/pools", &v)
	if status := new(admin.StatusError); errors.As(err, &status) && status.Status == http.StatusNotFound {
		return observePrometheus(ctx, c, over)
	}
	if err != nil {
		return nil, err
	}
	if over > 0 {
		return nil, errors.New("--over needs a Prometheus: an admin listener knows the last minutes only")
	}
	charts, err := getCharts(ctx, c)
	if err != nil {
		return nil, err
	}
	var all []Observation
	for _, p := range v.Pools {
		if p.Auto.DryRun {
			p.Auto.Limit = 0
		}
		rate, hold := charts.busiest(p.SSP)
		if rate*hold <= p.Need.ArrivalsPerSecond*p.Need.HoldSeconds { // the charts are shorter than the window of Need, or absent
			rate, hold = p.Need.ArrivalsPerSecond, p.Need.HoldSeconds
		}
		all = append(all, Observation{
			peak: int(math.Round(p.Peak * float64(p.Places))),
			own:  p.Auto.Limit, fullIn: seconds(p.FullIn),
			name: p.SSP, protocol: p.Protocol, rate: rate, hold: seconds(hold), instances: 1,
			conns: p.Limits.MaxConns, http2Conns: min(p.Limits.MaxConns, p.Limits.MaxHTTP2Conns), streams: p.Limits.MaxStreams, depth: p.Limits.PipelineDepth, sources: p.Limits.Sources,
		})
	}
	return all, nil
}

// charts are the response of /history: points of each SSP, every StepSeconds.
type charts struct {
	StepSeconds float64 `json:"step_seconds"`
	SSPs        map[string]struct {
		Rate []float64 `json:"rate"`    // requests per second
		Hold []float64 `json:"hold_ms"` // mean; 0 if no place was released
	} `json:"ssps"`
}

// busySeconds is the time over which the highest load is a mean.
const busySeconds = 10

// getCharts returns no charts if the listener has none.
func getCharts(ctx context.Context, c *admin.Client) (all charts, err error) {
	err = get(ctx, c, "/history", &all)
	if status := new(admin.StatusError); errors.As(err, &status) && status.Status == http.StatusNotFound {
		return charts{}, nil
	}
	return all, err
}

// busiest returns the rate and the mean hold, in seconds, of the time in which the SSP had the highest
// load.
func (c *charts) busiest(ssp string) (rate, hold float64) {
	rates, holds := c.SSPs[ssp].Rate, c.SSPs[ssp].Hold
	if c.StepSeconds <= 0 || len(rates) != len(holds) {
		return 0, 0
	}
	n := max(1, int(busySeconds/c.StepSeconds))
	for end := n; end <= len(rates); end++ {
		var sum, load float64
		for i := end - n; i < end; i++ {
			sum += rates[i]
			load += rates[i] * holds[i] / 1000
		}
		if load > rate*hold*float64(n) {
			rate, hold = sum/float64(n), load/sum
		}
	}
	return rate, hold
}

func get(ctx context.Context, c *admin.Client, path string, v any) error {
	body, err := c.Get(ctx, path)
	if err == nil && json.Unmarshal(body, v) != nil {
		err = fmt.Errorf("%s %w", c.URL(), errNeither)
	}
	return err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// observePrometheus asks for the highest rate of all instances, the longest mean hold, and the most
// places of an instance that were in use at once. Rates are over two minutes, so that they exist if
// Prometheus scrapes once a minute.
func observePrometheus(ctx context.Context, c *admin.Client, over time.Duration) ([]Observation, error) {
	if over == 0 {
		over = 5 * time.Minute
	}
	peak := func(q string) string {
		return fmt.Sprintf("max_over_time((%[1]s)[%[2]ds:1m]) or (%[1]s)", q, max(60, int(over.Seconds()))) // or: the SSP may be new
	}
	bySSP := make(map[string]*Observation)
	for _, q := range []struct {
		expr string
		set  func(o *Observation, v float64, labels map[string]string)
	}{
		{"max by (ssp) (adbuffer_pool_connections_limit)", func(o *Observation, v float64, _ map[string]string) { o.conns = int(v) }},
		{"count by (ssp) (adbuffer_pool_connections_limit)", func(o *Observation, v float64, _ map[string]string) { o.instances = int(v) }},
		{peak("max by (ssp) (adbuffer_pool_saturation_max_ratio * adbuffer_pool_places_limit)"), func(o *Observation, v float64, _ map[string]string) { o.peak = int(math.Round(v)) }},
		{peak("sum by (ssp) (rate(adbuffer_pool_acquire_seconds_count[2m]))"), func(o *Observation, v float64, _ map[string]string) { o.rate = v }},
		{peak("sum by (ssp) (rate(adbuffer_pool_hold_seconds_sum[2m])) / sum by (ssp) (rate(adbuffer_pool_hold_seconds_count[2m]))"),
			func(o *Observation, v float64, _ map[string]string) { o.hold = seconds(v) }},
		{"topk by (ssp) (1, sum by (ssp, protocol) (adbuffer_pool_connections_opened_total))",
			func(o *Observation, _ float64, labels map[string]string) { o.protocol = labels["protocol"] }},
	} {
		var v struct {
			Data struct {
				Result []struct {
					Metric map[string]string `json:"metric"`
					Value  [2]any            `json:"value"`
				} `json:"result"`
			} `json:"data"`
		}
		err := get(ctx, c, "/api/v1/query?query="+url.QueryEscape(q.expr), &v)
		if status := new(admin.StatusError); errors.As(err, &status) && status.Status == http.StatusNotFound {
			return nil, fmt.Errorf("%s %w", c.URL(), errNeither)
		}
		if err != nil {
			return nil, err
		}
		for _, r := range v.Data.Result {
			text, _ := r.Value[1].(string)
			value, err := strconv.ParseFloat(text, 64)
			name := r.Metric["ssp"]
			if err != nil || value != value || name == "" { // 0/0 is NaN: no place was in use
				continue
			}
			if bySSP[name] == nil {
				bySSP[name] = &Observation{name: name}
			}
			q.set(bySSP[name], value, r.Metric)
		}
	}
	if len(bySSP) == 0 {
		return nil, fmt.Errorf("%s has no metrics of adbuffer", c.URL())
	}
	var all []Observation
	for _, name := range slices.Sorted(maps.Keys(bySSP)) {
		all = append(all, *bySSP[name])
	}
	return all, nil
}
