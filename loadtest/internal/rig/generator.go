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

// generated is what a generator's child answers.
type generated struct {
	Result *load.Result `json:"result"`
	Error  string       `json:"error"`
}

// generate carries a plan out, until the end of in at the latest.
func generate(line string, answer *json.Encoder, in *bufio.Reader) error {
	var plan load.Plan
	if err := json.Unmarshal([]byte(line), &plan); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	r, err := load.Run(ctx, plan, nil)
	out := generated{Result: r}
	if err != nil {
		out.Error = err.Error()
	}
	return answer.Encode(out)
}

// Generate carries out a plan without TLS, in a process of its own.
func (r *Rig) Generate(ctx context.Context, plan load.Plan, cores string) (*load.Result, error) {
	if plan.TLS != nil {
		return nil, errors.New("BUG: a TLS configuration cannot be handed to another process")
	}
	c, err := r.spawn("generator", "generator", cores, plan)
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
	var g generated
	if err := c.readWithin(&g, length); err != nil {
		return nil, err
	}
	if g.Error != "" {
		return g.Result, errors.New(g.Error)
	}
	return g.Result, nil
}
