package tests

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/stage"
)

// clientWay is a way in which clients use connections.
type clientWay struct {
	name, protocol, title string
	load                  stage.Driver
}

func (c *comparison) clientWays() []clientWay {
	// ab speaks HTTP/1.0, which Envoy refuses.
	closing := c.request
	closing.Headers = append(slices.Clone(closing.Headers), load.Field{Name: "Connection", Value: "close"})
	return []clientWay{
		{"tls", "clients", "HTTP/1.1 over TLS, 64 clients", stage.WRK(c.request, 64, c.length)},
		{"h2 64x1", "clients", "HTTP/2 over TLS, 64 connections × 1 stream", stage.H2Load(c.request, 64, 1, c.length)},
		{"h2 8x8", "clients", "HTTP/2 over TLS, 8 connections × 8 streams", stage.H2Load(c.request, 8, 8, c.length)},
		{"new tls", "clients", "a new TLS connection for each request, 16 at once", stage.WRK(closing, 16, c.length)},
		{"1000 clients", "h1", "cleartext HTTP/1.1, 1 000 clients", stage.WRK(c.request, 1000, c.length)},
	}
}

// minShare is the share of its core above which a proxy is saturated.
const minShare = 0.85

// saturated adds a doubt if a proxy used less than its core: other work took the core, or the load was
// too small.
func saturated(s *stage.Sample) {
	if share := s.Values["cpu_s"] / s.Values["seconds"]; share < minShare {
		s.Doubts = append(s.Doubts, fmt.Sprintf("at saturation it used only %.0f %% of its core", share*100))
	}
}

// sound voids a row if requests fail, or if the proxy does not return exactly the upstream's response.
func (c *comparison) sound(drive stage.Driver) stage.Driver {
	checked := false
	return func(ctx context.Context, s *stage.Stage) (*stage.Sample, error) {
		if !checked {
			if err := forwards(ctx, s, c.request, c.body); err != nil {
				return &stage.Sample{Void: "does not return the upstream's response: " + err.Error()}, nil
			}
			checked = true
		}
		sample, err := drive(ctx, s)
		if err != nil && ctx.Err() == nil {
			return &stage.Sample{Void: err.Error()}, nil // a tool that hangs voids its row only
		}
		if err == nil && (sample.Values["failed"] > 0 || sample.Values["answered"] == 0) {
			sample.Void = fmt.Sprintf("%.0f requests failed, %.0f did not: %s", sample.Values["failed"], sample.Values["answered"], sample.Texts["errors"])
		}
		return sample, err
	}
}

// unlessVoid omits a measurement if its requests fail, and keeps the other measurements of its row.
func unlessVoid(drive stage.Driver) stage.Driver {
	return func(ctx context.Context, s *stage.Stage) (*stage.Sample, error) {
		sample, err := drive(ctx, s)
		if err == nil && sample.Void != "" {
			return &stage.Sample{Doubts: []string{sample.Void}}, nil
		}
		return sample, err
	}
}

// settled is how long a program has to free what it frees lazily, before the idle clients come
// and after their requests.
const settled = 5 * time.Second

// idle measures the memory of idle clients. Each client has sent one request before.
func (c *comparison) idle(kind string) stage.Driver {
	return func(ctx context.Context, s *stage.Stage) (*stage.Sample, error) {
		rss := func() (float64, error) {
			u, err := load.ReadTree(s.PID)
			return float64(u.RSS), err
		}
		order := rig.HoldOrder{URL: s.URL() + load.Fill(c.request.Path, 1), Headers: c.request.Headers, Connections: 50, HTTP2: kind == "HTTP/2"}
		warm, err := s.Rig.Hold(order, s.LoadCores)
		if err == nil {
			warm.Stop()
			stage.Sleep(ctx, settled)
		}
		before, err := rss()
		if err != nil {
			return nil, err
		}
		order.Connections = c.Idle
		held, err := s.Rig.Hold(order, s.LoadCores)
		if errors.Is(err, rig.ErrNotHeld) {
			return &stage.Sample{Void: err.Error()}, nil
		}
		if err != nil {
			return nil, err
		}
		defer held.Stop()
		stage.Sleep(ctx, settled)
		after, err := rss()
		return &stage.Sample{Values: stage.Values{"before.rss": before, "with.rss": after, "kib": (after - before) / 1024 / float64(c.Idle)}}, err
	}
}

// forwards returns an error if a stage does not return exactly the upstream's response.
func forwards(ctx context.Context, s *stage.Stage, t load.Template, want []byte) error {
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	return rig.Fetch(ctx, transport, s.URL()+load.Fill(t.Path, 1), t.Headers, func(resp *http.Response, body []byte) error {
		switch {
		case resp.StatusCode != 200:
			return fmt.Errorf("status %d: %.100q", resp.StatusCode, body)
		case !bytes.Equal(body, want):
			return fmt.Errorf("a body of %d bytes, not the upstream's %d", len(body), len(want))
		case resp.Header.Get("Content-Type") != "application/json":
			return fmt.Errorf("Content-Type %q, not the upstream's", resp.Header.Get("Content-Type"))
		}
		return nil
	})
}
