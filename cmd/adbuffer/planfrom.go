package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"adbuffer/internal/capacity"
	"adbuffer/internal/config"
)

// observation is what one SSP was seen to need.
type observation struct {
	name, protocol string
	rate           float64       // requests per second, of all instances
	hold           time.Duration // mean
	instances      int
	conns          int // max_conns in force
	http2Conns     int // max_http2_conns in force; 0 = not known
	streams        int // 0 = not known
	depth          int // pipeline_depth; 0 = not known
}

const (
	fromTimeout  = 15 * time.Second
	maxFromBytes = 64 << 20
)

// observed plans for what was seen of every SSP.
func (f *planFlags) observed(ctx context.Context, forced, streamsGiven bool) ([]planned, error) {
	ctx, cancel := context.WithTimeout(ctx, fromTimeout)
	defer cancel()
	src, err := newSource(f.from, f.token)
	if err != nil {
		return nil, err
	}
	seen, err := src.observe(ctx, f.over)
	if err != nil {
		return nil, err
	}
	var plan []planned
	var idle []string
	for _, o := range seen {
		if f.name != "" && o.name != f.name {
			continue
		}
		if o.rate <= 0 || o.hold <= 0 {
			idle = append(idle, o.name)
			continue
		}
		p := planned{name: o.name, protocol: o.protocol, now: o.conns, measured: true, in: f.in}
		if forced {
			p.protocol = f.protocol
		}
		p.in.Rate, p.in.P50, p.in.P99 = o.rate*float64(f.in.Replicas), o.hold, o.hold
		if o.instances > 1 {
			p.in.Rate, p.in.Replicas = o.rate, o.instances
		}
		switch config.Protocol(p.protocol) {
		case config.ProtocolHTTP2, config.ProtocolH2C:
			p.now = o.http2Conns
			if o.streams > 0 && !streamsGiven {
				p.in.Streams = o.streams
			}
		case config.ProtocolHTTP1Pipelined:
			if p.in.Streams = defaultDepth; o.depth > 0 {
				p.in.Streams = o.depth
			}
			if streamsGiven {
				p.in.Streams = f.in.Streams
			}
		}
		if p.result, err = capacity.Plan(p.in); err != nil {
			return nil, fmt.Errorf("%s: %w", o.name, asFlags(err))
		}
		plan = append(plan, p)
	}
	if len(plan) == 0 {
		switch {
		case len(idle) > 0:
			return nil, fmt.Errorf("%s: no requests to %s in the time looked at: nothing to plan with", f.from, strings.Join(idle, ", "))
		case f.name != "":
			return nil, fmt.Errorf("%s: there is no SSP %q", f.from, f.name)
		}
		return nil, fmt.Errorf("%s: there are no SSPs", f.from)
	}
	return plan, nil
}

// source is an admin listener or a Prometheus.
type source struct {
	base   string
	token  string
	client http.Client
}

func newSource(from, tokenFile string) (*source, error) {
	u, err := url.Parse(from)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("--from %s: must be a URL, for example http://127.0.0.1:9090", from)
	}
	s := &source{base: strings.TrimSuffix(strings.TrimSuffix(from, "/"), "/pools")}
	s.client.Transport = &http.Transport{DisableKeepAlives: true}
	if tokenFile != "" {
		b, err := os.ReadFile(tokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		s.token = strings.TrimSpace(string(b))
	}
	return s, nil
}

// errNotThere: the path is not one of this server's.
var errNotThere = errors.New("not found")

func (s *source) get(ctx context.Context, path string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, nil)
	if err != nil {
		return err
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(io.LimitReader(res.Body, maxFromBytes))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", s.base+path, err)
	case res.StatusCode == http.StatusNotFound:
		return errNotThere
	case res.StatusCode == http.StatusForbidden:
		return fmt.Errorf("%s: %s; see --token-file", s.base+path, strings.TrimSpace(string(body)))
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("%s answered %s: %.200s", s.base+path, res.Status, body)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%s is neither an adbuffer's admin listener nor a Prometheus: %w", s.base, err)
	}
	return nil
}

// observe asks for /pools, which only adbuffer has, and else for queries.
func (s *source) observe(ctx context.Context, over time.Duration) ([]observation, error) {
	var v struct {
		Pools []struct {
			SSP      string `json:"ssp"`
			Protocol string `json:"protocol"`
			Need     struct {
				Rate float64 `json:"arrivals_per_second"`
				Hold float64 `json:"hold_seconds"`
			} `json:"need"`
			Limits struct {
				MaxConns      int `json:"max_conns"`
				MaxHTTP2Conns int `json:"max_http2_conns"`
				MaxStreams    int `json:"max_streams_per_conn"`
				PipelineDepth int `json:"pipeline_depth"`
			} `json:"limits"`
		} `json:"pools"`
	}
	switch err := s.get(ctx, "/pools", &v); {
	case errors.Is(err, errNotThere):
		return s.query(ctx, over)
	case err != nil:
		return nil, err
	case over > 0:
		return nil, errors.New("--over needs a Prometheus: an admin listener knows the last minute only")
	}
	var all []observation
	for _, p := range v.Pools {
		all = append(all, observation{
			name: p.SSP, protocol: p.Protocol, rate: p.Need.Rate, hold: seconds(p.Need.Hold), instances: 1,
			conns: p.Limits.MaxConns, http2Conns: min(p.Limits.MaxConns, p.Limits.MaxHTTP2Conns), streams: p.Limits.MaxStreams, depth: p.Limits.PipelineDepth,
		})
	}
	return all, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// query asks a Prometheus. Rates are of all instances, holds their mean.
func (s *source) query(ctx context.Context, over time.Duration) ([]observation, error) {
	peak := func(q string) string {
		if over == 0 {
			return q
		}
		return fmt.Sprintf("max_over_time((%s)[%ds:1m])", q, max(60, int(over.Seconds())))
	}
	bySSP := make(map[string]*observation)
	for _, q := range []struct {
		expr string
		set  func(o *observation, v float64, labels map[string]string)
	}{
		{"max by (ssp) (adbuffer_pool_connections_limit)", func(o *observation, v float64, _ map[string]string) { o.conns = int(v) }},
		{"count by (ssp) (adbuffer_pool_connections_limit)", func(o *observation, v float64, _ map[string]string) { o.instances = int(v) }},
		{peak("sum by (ssp) (rate(adbuffer_pool_acquire_seconds_count[5m]))"), func(o *observation, v float64, _ map[string]string) { o.rate = v }},
		{peak("sum by (ssp) (rate(adbuffer_pool_hold_seconds_sum[5m])) / sum by (ssp) (rate(adbuffer_pool_hold_seconds_count[5m]))"),
			func(o *observation, v float64, _ map[string]string) { o.hold = seconds(v) }},
		{"topk by (ssp) (1, sum by (ssp, protocol) (adbuffer_pool_connections_opened_total))",
			func(o *observation, _ float64, labels map[string]string) { o.protocol = labels["protocol"] }},
	} {
		var v struct {
			Data struct {
				Result []struct {
					Metric map[string]string `json:"metric"`
					Value  [2]any            `json:"value"`
				} `json:"result"`
			} `json:"data"`
		}
		if err := s.get(ctx, "/api/v1/query?query="+url.QueryEscape(q.expr), &v); errors.Is(err, errNotThere) {
			return nil, fmt.Errorf("%s is neither an adbuffer's admin listener nor a Prometheus", s.base)
		} else if err != nil {
			return nil, err
		}
		for _, r := range v.Data.Result {
			text, _ := r.Value[1].(string)
			value, err := strconv.ParseFloat(text, 64)
			name := r.Metric["ssp"]
			if err != nil || value != value || name == "" { // 0/0 is NaN: nothing was held
				continue
			}
			if bySSP[name] == nil {
				bySSP[name] = &observation{name: name}
			}
			q.set(bySSP[name], value, r.Metric)
		}
	}
	if len(bySSP) == 0 {
		return nil, fmt.Errorf("%s has no metrics of adbuffer", s.base)
	}
	all := make([]observation, 0, len(bySSP))
	for _, o := range bySSP {
		all = append(all, *o)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].name < all[j].name })
	return all, nil
}
