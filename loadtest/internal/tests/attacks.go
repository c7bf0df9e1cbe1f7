package tests

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"adbuffer/loadtest/internal/engine"
	"adbuffer/loadtest/internal/load"
)

// attack is what one hostile client, or one hostile SSP, does.
type attack struct {
	name, cost string
	encrypted  bool // adbuffer's listener has TLS
	// ssp serves a connection of the attacker's own SSP; nil for none.
	ssp func(net.Conn)
	// othersAsk says that the other clients ask the attacker's SSP too.
	othersAsk bool
	// workers attack at once, each again and again.
	workers int
	do      func(ctx context.Context, t *engine.Stage)
}

// attackersSSP is the name of the attacker's SSP.
const attackersSSP = "attacker"

var attacks = []*attack{
	{name: "1 024 clients claim a body and are silent", cost: "1 024 connections, 120 bytes each", workers: 1024, do: claimBody},
	{name: "an SSP claims a length and is silent", cost: "256 connections, 60 bytes each", ssp: lieWith("Content-Length: 1048576\r\n\r\n"), workers: 256, do: askTheLiar},
	{name: "an SSP claims a chunk and is silent", cost: "256 connections, 60 bytes each", ssp: lieWith("Transfer-Encoding: chunked\r\n\r\n100000\r\n"), workers: 256, do: askTheLiar},
	{name: "500 streams without their bodies", cost: "2 TLS connections, 30 bytes a stream", encrypted: true, workers: 2, do: openStreams},
	{name: "a client provokes 429 with Retry-After", cost: "30 requests a second", ssp: refuseTheGreedy, othersAsk: true, workers: 3, do: beGreedy},
}

// serve serves the attacker's SSP to the end of the process, and returns its URL.
func (a *attack) serve() (url string, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				a.ssp(c)
			}()
		}
	}()
	return "http://" + ln.Addr().String() + "/bid", nil
}

// start attacks until the context ends; wait waits for the attackers.
func (a *attack) start(ctx context.Context, t *engine.Stage) (wait func()) {
	var workers sync.WaitGroup
	for range a.workers {
		workers.Go(func() {
			for ctx.Err() == nil {
				a.do(ctx, t)
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	return workers.Wait
}

// during begins the attack when adbuffer has ended n requests of the other clients, and ends it
// after length, just behind their last request. If the attacker stayed alone with its SSP, the SSP
// would rightly be paused, and the pause would outlast the step.
func (a *attack) during(n float64, length time.Duration) func(context.Context, *engine.Stage) (func() error, error) {
	return func(ctx context.Context, s *engine.Stage) (func() error, error) {
		const ended = "adbuffer_requests_total"
		before, err := s.Adbuffer.Metric(ended)
		if err != nil {
			return nil, err
		}
		ctx, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() {
			for ; ctx.Err() == nil; engine.Sleep(ctx, 20*time.Millisecond) {
				if now, err := s.Adbuffer.Metric(ended); err != nil || now >= before+n {
					attacking, end := context.WithTimeout(ctx, length)
					a.start(attacking, s)()
					end()
					done <- err
					return
				}
			}
			done <- errors.New("the attack did not begin: the other clients ended too few requests")
		}()
		return func() error { stop(); return <-done }, nil
	}
}

// dial connects to the stage, for as long as the context lasts.
func dial(ctx context.Context, t *engine.Stage) (c net.Conn, stop func(), err error) {
	if !t.TLS {
		c, err = new(net.Dialer).DialContext(ctx, "tcp", t.Addr)
	} else {
		// What an attacker trusts is its own affair.
		c, err = (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}).DialContext(ctx, "tcp", t.Addr)
	}
	if err != nil {
		return nil, nil, err
	}
	after := context.AfterFunc(ctx, func() { c.Close() })
	return c, func() { after(); c.Close() }, nil
}

// claimBody is a client that claims a body as long as it may be.
func claimBody(ctx context.Context, t *engine.Stage) {
	c, stop, err := dial(ctx, t)
	if err != nil {
		return
	}
	defer stop()
	_, _ = io.WriteString(c, "POST /fillbuffer/fair1 HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 262144\r\n\r\n{")
	_, _ = io.Copy(io.Discard, c) // until adbuffer has had enough
}

// lieWith is an SSP that starts a response, and does not go on.
func lieWith(rest string) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"+rest)
		_, _ = io.Copy(io.Discard, c)
	}
}

// liarDeadline is longer than a round, and short enough for rest to wait for.
const liarDeadline = 15 * time.Second

// askTheLiar keeps a connection of the lying SSP busy for a round.
func askTheLiar(ctx context.Context, t *engine.Stage) {
	c, stop, err := dial(ctx, t)
	if err != nil {
		return
	}
	defer stop()
	fmt.Fprintf(c, "GET /fillbuffer/%s HTTP/1.1\r\nHost: a\r\nX-Adbuffer-Timeout-Ms: %d\r\nConnection: close\r\n\r\n", attackersSSP, liarDeadline.Milliseconds())
	_, _ = io.Copy(io.Discard, c)
}

// openStreams is a client that opens as many streams as it may, each of which
// claims a body that does not come.
func openStreams(ctx context.Context, t *engine.Stage) {
	c, stop, err := dial(ctx, t)
	if err != nil {
		return
	}
	defer stop()
	const streams = 250
	f, next := load.NewRawHTTP2(c), uint32(1)
	open := func() {
		f.Open(next, "POST", "/fillbuffer/fair1", 262_144)
		next += 2
	}
	for range streams {
		open()
	}
	for f.Flush() == nil {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				_ = f.WritePing(true, frame.Data)
			}
		case *http2.RSTStreamFrame:
			// One stream less: the next, but not faster than a patient attacker.
			time.Sleep(time.Millisecond)
			open()
		}
	}
}

// greedy marks the requests that the SSP refuses.
const greedy = "greedy=1"

// refuseTheGreedy is an SSP that asks for a pause where a request provokes it,
// and answers the others.
func refuseTheGreedy(c net.Conn) {
	in := bufio.NewReader(c)
	for {
		q, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, q.Body)
		if strings.Contains(q.URL.RawQuery, greedy) {
			_, err = io.WriteString(c, "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n")
		} else {
			time.Sleep(healthyLatency)
			_, err = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Echo-Cb: %s\r\nContent-Length: 2\r\n\r\nad", q.URL.Query().Get("cb"))
		}
		if err != nil {
			return
		}
	}
}

// beGreedy provokes one 429.
func beGreedy(ctx context.Context, t *engine.Stage) {
	c, stop, err := dial(ctx, t)
	if err != nil {
		return
	}
	defer stop()
	fmt.Fprintf(c, "GET /fillbuffer/%s?%s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", attackersSSP, greedy)
	_, _ = io.Copy(io.Discard, c)
}
