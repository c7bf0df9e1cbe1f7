package rig

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"adbuffer/loadtest/internal/load"
)

// HoldOrder describes connections that a holder keeps idle. Each of them carries one GET first.
type HoldOrder struct {
	URL         string
	Headers     []load.Field
	Connections int
	HTTP2       bool
}

// holdReply is the number of connections that the holder keeps.
type holdReply struct {
	Open  int
	Error string // error of the first connection that failed
}

// hold opens connections, reads one response on each, and keeps them until the context ends.
func hold(ctx context.Context, o HoldOrder, reply func(any) error) error {
	var mu sync.Mutex
	var held []*http.Transport
	var result holdReply
	var wait sync.WaitGroup
	atOnce := make(chan struct{}, 64) // fewer than a listener queues
	for range o.Connections {
		atOnce <- struct{}{}
		wait.Go(func() {
			defer func() { <-atOnce }()
			// Each connection has its own transport, because a shared one would reuse idle connections.
			t := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: o.HTTP2, DisableCompression: true}
			err := Fetch(ctx, t, o.URL, o.Headers, func(resp *http.Response, _ []byte) error {
				if o.HTTP2 != (resp.ProtoMajor == 2) {
					return fmt.Errorf("the response came over %s", resp.Proto)
				}
				return nil
			})
			mu.Lock()
			defer mu.Unlock()
			held = append(held, t)
			if err == nil {
				result.Open++
			} else if result.Error == "" {
				result.Error = err.Error()
			}
		})
	}
	wait.Wait()
	if err := reply(result); err != nil {
		return err
	}
	<-ctx.Done()
	for _, t := range held {
		t.CloseIdleConnections()
	}
	return nil
}

// ErrNotHeld reports that only some idle connections could be opened.
var ErrNotHeld = errors.New("idle connections could be opened")

// Hold opens idle connections in a process of their own. That process closes them when it stops.
func (r *Rig) Hold(o HoldOrder, cores string) (*Process, error) {
	c, err := r.spawn("holder", Command{Name: "holder", Cores: cores}, o)
	if err != nil {
		return nil, err
	}
	var a holdReply
	if err := c.read(&a, childTimeout+time.Duration(o.Connections)*5*time.Millisecond); err != nil {
		return nil, err
	}
	if a.Open < o.Connections {
		c.Stop()
		return nil, fmt.Errorf("%d of %d %w: %s", a.Open, o.Connections, ErrNotHeld, a.Error)
	}
	return c.Process, nil
}
