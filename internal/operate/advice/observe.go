package advice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"adbuffer/internal/operate/admin"
	"adbuffer/internal/ssp/pool"
)

// Observation is the load of one SSP, with its current limits.
type Observation struct {
	name, protocol string
	rate           float64       // requests per second
	hold           time.Duration // mean
	conns          int           // max_conns
	autoLimit      int           // places that pool.auto allows; 0 = it is off
	http2Conns     int           // max_http2_conns; 0 = unknown
	streams        int           // 0 = unknown
	depth          int           // pipeline_depth; 0 = unknown
	sources        int           // source_addresses; 0 = none, or unknown
	places         int           // places_limit; 0 = unknown
	peak           int           // highest number of places in use at once in this instance; 0 = unknown
	openFiles      int           // limit of the process; 0 = unknown, or no limit
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

// errNotAdmin is the error if a server does not respond as an admin listener.
var errNotAdmin = errors.New("does not respond as an adbuffer's admin listener does")

// Observe asks an admin listener for the highest load of the last minutes.
func Observe(ctx context.Context, c *admin.Client) ([]Observation, error) {
	var v struct {
		Service struct {
			OpenFilesLimit int `json:"open_files_limit"`
		} `json:"service"`
		Pools []struct {
			SSP      string    `json:"ssp"`
			Protocol string    `json:"protocol"`
			Need     pool.Need `json:"need"`
			Auto     struct {
				DryRun bool `json:"dry_run"`
				Limit  int  `json:"limit"`
			} `json:"auto"`
			Places int    `json:"places_limit"`
			Peak   int    `json:"places_in_use_max"`
			Limits Limits `json:"limits"`
		} `json:"pools"`
	}
	if err := getPools(ctx, c, &v); err != nil {
		return nil, err
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
			places:    p.Places,
			peak:      p.Peak,
			autoLimit: p.Auto.Limit,
			openFiles: v.Service.OpenFilesLimit,
			name:      p.SSP, protocol: p.Protocol, rate: rate, hold: seconds(hold),
			conns: p.Limits.MaxConns, http2Conns: min(p.Limits.MaxConns, p.Limits.MaxHTTP2Conns), streams: p.Limits.MaxStreams, depth: p.Limits.PipelineDepth, sources: p.Limits.Sources,
		})
	}
	return all, nil
}

// getPools sets v to the response of /pools.
func getPools(ctx context.Context, c *admin.Client, v any) error {
	err := get(ctx, c, "/pools", v)
	if status := new(admin.StatusError); errors.As(err, &status) && status.Status == http.StatusNotFound {
		return fmt.Errorf("%s %w", c.URL(), errNotAdmin)
	}
	return err
}

// charts is the response of /history: for each SSP, a point for every StepSeconds.
type charts struct {
	StepSeconds float64 `json:"step_seconds"`
	SSPs        map[string]struct {
		Rate []float64 `json:"rate"`    // requests per second
		Hold []float64 `json:"hold_ms"` // mean; 0 if no place was released
	} `json:"ssps"`
}

// busySeconds is the length of the window whose mean is compared to find the highest load.
const busySeconds = 10

// getCharts returns empty charts if the listener does not have /history.
func getCharts(ctx context.Context, c *admin.Client) (all charts, err error) {
	err = get(ctx, c, "/history", &all)
	if status := new(admin.StatusError); errors.As(err, &status) && status.Status == http.StatusNotFound {
		return charts{}, nil
	}
	return all, err
}

// busiest returns the rate and the mean hold, in seconds, of the window of busySeconds in which the SSP had the
// highest load.
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
		err = fmt.Errorf("%s %w", c.URL(), errNotAdmin)
	}
	return err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
