package rig

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"adbuffer/loadtest/internal/load"
)

// generatorOrder tells a generator what to do.
type generatorOrder struct {
	Plan  load.Plan `json:"plan"`
	Watch bool      `json:"watch"` // answer how it goes on, too
}

// generated is what a generator's child answers: how it goes on, line by line,
// and at last the result.
type generated struct {
	Progress *load.Progress `json:"progress,omitempty"`
	Result   *load.Result   `json:"result,omitempty"`
	Error    string         `json:"error,omitempty"`
}

// generate carries a plan out, until the end of in at the latest.
func generate(line string, answer *json.Encoder, in *bufio.Reader) error {
	var o generatorOrder
	if err := json.Unmarshal([]byte(line), &o); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	var report func(load.Progress)
	if o.Watch {
		report = func(p load.Progress) {
			if answer.Encode(generated{Progress: &p}) != nil {
				cancel() // the parent has gone
			}
		}
	}
	r, err := load.Run(ctx, o.Plan, report)
	out := generated{Result: r}
	if err != nil {
		out.Error = err.Error()
	}
	return answer.Encode(out)
}

// Generate carries out a plan without TLS, in a process of its own. watch, which
// may be nil, is told once an interval how it goes on.
func (r *Rig) Generate(ctx context.Context, plan load.Plan, cores string, watch func(load.Progress)) (*load.Result, error) {
	if plan.TLS != nil {
		return nil, errors.New("BUG: a TLS configuration cannot be handed to another process")
	}
	c, err := r.spawn("generator", "generator", cores, generatorOrder{plan, watch != nil})
	if err != nil {
		return nil, err
	}
	defer c.Stop()
	stop := context.AfterFunc(ctx, func() { c.in.Close() })
	defer stop()
	length := plan.Timeout + time.Minute
	for _, p := range plan.Phases {
		length += p.Duration
	}
	for end := time.Now().Add(length); ; {
		var g generated
		if err := c.readWithin(&g, time.Until(end)); err != nil {
			return nil, err
		}
		switch {
		case g.Error != "":
			return g.Result, errors.New(g.Error)
		case g.Progress == nil:
			return g.Result, nil
		case watch != nil:
			watch(*g.Progress)
		}
	}
}
