package tests

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
)

// attack is the attack of one hostile client or one hostile SSP.
type attack struct {
	name, cost string
	encrypted  bool // adbuffer's listener has TLS
	// ssp serves the attacker's own SSP; nil for none.
	ssp http.HandlerFunc
	// shared says that the other clients send requests to the attacker's SSP too.
	shared bool
	// workers is how many goroutines repeat the attack at the same time.
	workers int
	// do attacks on a connection to adbuffer.
	do func(net.Conn)
}

const (
	// attackersSSP is the name of the attacker's SSP.
	attackersSSP = "attacker"
	// greedy marks the requests that the attacker's SSP refuses.
	greedy = "greedy=1"
	// liarDeadline is longer than a round, and short enough for rest to wait that long.
	liarDeadline = 15 * time.Second
)

var (
	// claimBody claims the longest body that adbuffer takes, and sends one byte.
	claimBody = send("POST /fillbuffer/fair1 HTTP/1.1\r\nHost: a\r\nContent-Type: " +
		"application/json\r\nContent-Length: 262144\r\n\r\n{")
	// askTheLiar keeps a connection of the lying SSP in use for a round.
	askTheLiar = send(fmt.Sprintf("GET /fillbuffer/%s HTTP/1.1\r\nHost: a\r\nX-Adbuffer-Timeout-Ms: "+
		"%d\r\nConnection: close\r\n\r\n", attackersSSP, liarDeadline.Milliseconds()))
	// beGreedy provokes one 429.
	beGreedy = send(fmt.Sprintf("GET /fillbuffer/%s?%s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", attackersSSP,
		greedy))
)

var attacks = []*attack{
	{name: "1 024 clients claim a body and are silent", cost: "1 024 connections, 120 bytes each", workers: 1024,
		do: claimBody},
	{name: "an SSP claims a length and is silent", cost: "256 connections, 60 bytes each",
		ssp: lieWith("Content-Length: 1048576\r\n\r\n"), workers: 256, do: askTheLiar},
	{name: "an SSP claims a chunk and is silent", cost: "256 connections, 60 bytes each",
		ssp: lieWith("Transfer-Encoding: chunked\r\n\r\n100000\r\n"), workers: 256, do: askTheLiar},
	{name: "500 streams without their bodies", cost: "2 TLS connections, 30 bytes a stream", encrypted: true,
		workers: 2, do: openStreams},
	{name: "a client provokes 429 with Retry-After", cost: "30 requests a second", ssp: refuseTheGreedy, shared: true,
		workers: 3, do: beGreedy},
}

func (a *attack) run(ctx context.Context, t *rig.Stage) {
	var workers sync.WaitGroup
	for range a.workers {
		workers.Go(func() {
			for ; ctx.Err() == nil; rig.Sleep(ctx, 100*time.Millisecond) {
				a.once(ctx, t)
			}
		})
	}
	workers.Wait()
}

// once attacks on one connection, which closes when the context ends.
func (a *attack) once(ctx context.Context, t *rig.Stage) {
	dial := new(net.Dialer).DialContext
	if t.TLS {
		// An attacker does not check adbuffer's certificate.
		dial = (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}).DialContext
	}
	c, err := dial(ctx, "tcp", t.Addr)
	if err != nil {
		return
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	a.do(c)
}

// after starts the attack when adbuffer has completed n requests of the other clients. It stops the
// attack after length, just behind their last request. If only the attacker used its SSP, adbuffer
// would rightly pause the SSP, and the pause would outlast the round.
func (a *attack) after(ctx context.Context, s *rig.Stage, n float64, length time.Duration) {
	const ended = "adbuffer_requests_total"
	before := s.Adbuffer.Metric(ended)
	s.Adbuffer.Await(10*time.Second, "complete enough requests before the attack",
		func() bool { return s.Adbuffer.Metric(ended) >= before+n })
	attacking, end := context.WithTimeout(ctx, length)
	defer end()
	a.run(attacking, s)
}

// send returns an attack that sends a text and reads until adbuffer closes the connection.
func send(text string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = io.WriteString(c, text)
		_, _ = io.Copy(io.Discard, c)
	}
}

// lieWith is an SSP that starts a response and does not continue it.
func lieWith(rest string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			defer c.Close()
			send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + rest)(c)
		}
	}
}

// openStreams is a client that opens as many streams as adbuffer allows. Each stream claims a body that
// the client does not send.
func openStreams(c net.Conn) {
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
			// The client opens the next stream after a pause, as a patient attacker does.
			time.Sleep(time.Millisecond)
			open()
		}
	}
}

// refuseTheGreedy is an SSP that responds 429 with Retry-After to the requests that provoke it, and
// 200 to the other requests.
func refuseTheGreedy(w http.ResponseWriter, q *http.Request) {
	if strings.Contains(q.URL.RawQuery, greedy) {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	time.Sleep(healthyLatency)
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("X-Echo-Cb", q.URL.Query().Get("cb"))
	_, _ = io.WriteString(w, "ad")
}
