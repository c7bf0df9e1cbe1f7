// Package tests has the load tests as data for package stage. A test lists its trials, its tables and
// charts, and the promises that must hold.
package tests

import (
	"context"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/stage"
)

// Command is a load test and its texts on the command line.
type Command struct {
	Name, Short, Long string
	Make              func(context.Context, *stage.Env) (*stage.Test, error)
}

// simple makes a test that needs only its environment.
func simple(test func(*stage.Env) *stage.Test) func(context.Context, *stage.Env) (*stage.Test, error) {
	return func(_ context.Context, e *stage.Env) (*stage.Test, error) { return test(e), nil }
}

// Commands are the tests without flags of their own, in the order in which the command all runs them.
var Commands = []Command{
	{"keepalive", "500 sequential requests: a connection each against keep-alive", "Sends 500 requests one after the other, with a connection each and with keep-alive,\nstraight to an SSP and through adbuffer, from curl, Node and the generator.", simple(keepAlive)},
	{"pipeline", "10 000 requests: pipelined, by workers, at once", "Sends 10 000 GETs as 100 pipelines of 100, from 100 workers with keep-alive, and all\nat once, straight to an SSP and through adbuffer.", simple(pipeline)},
	{"pools", "Throughput by pool size and latency, held against N / X", "Measures pools of 100 to 2 000 places against SSPs that take 10 ms to 1 s, over http,\nhttps and h2, and without a pool; and a queue that overflows. Below --scale 0.5 the\nmatrix has three sizes and three latencies.", simple(pools)},
	{"rules", "Keep-alive on and off with ab and wrk, and the ports", "Loads adbuffer with ab and wrk, with keep-alive and without, and looks at sockets in\nTIME_WAIT.", rules},
	{"adproxy", "ab without keep-alive: fastify, a fasthttp sketch, adbuffer", "Runs ab -n 1000000 with -c 100 and -c 500 on /fillbuffer of a fastify program, a\nfasthttp program and adbuffer, for constant and forwarded responses.", adProxy},
	{"sick", "One of eight SSPs is sick in eight ways", "Loads eight SSPs while one of them hangs, refuses, drops SYNs, resets, responds 503,\ndrips, is slow, or sends GOAWAY, and reports what that cost the other SSPs.", simple(sick)},
	{"cold", "600 requests at once on a cold start", "Sends 600 requests at once to an adbuffer that has just started.", simple(cold)},
	{"churn", "SSPs that close connections", "Loads SSPs that close connections after 100 requests or when they idle.", simple(churn)},
	{"burst", "From nothing to the peak in two seconds", "Raises the load from nothing to its peak within two seconds, cold and warmed.", simple(burst)},
	{"endpoints", "One of two endpoints fails, beside Envoy and HAProxy", "Makes one of an SSP's two endpoints respond 500 to everything, and later repairs it. Measures what\nthat costs with ejection and without it, and at Envoy (outlier detection) and HAProxy (observe\nlayer7): set $ENVOY or see scripts/envoy. Then an endpoint of priority 0 dies and\ncomes back, all primaries fail, hang or are slow beside a spare (at Envoy by priority, at HAProxy a\nbackup), and a mirror is a black hole: how soon do requests move, and what does p99 lose?", simple(endpoints)},
	{"fairness", "One client or one SSP attacks, and other clients must not feel it", "Attacks adbuffer with what a single client or a single SSP can send: bodies and lengths\nthat are claimed and do not come, streams without bodies, 429 with Retry-After. Calm and\nattacked rounds take turns; the success and p99 of other clients are compared.", fairness},
}

// Story takes seven minutes at any scale, so that the command all leaves it out.
var Story = Command{"story", "A pool that gets too small, and the alerts: seven minutes", "Slows an SSP down from 80 to 200 ms while requests keep coming at one rate. A real Prometheus\nscrapes adbuffer with the rules of deploy/prometheus. It must alert before the first request\nis refused, and the advised size, once set, must end the waiting.", simple(story)}

// steady returns the behaviour of an SSP with the same latency for all requests.
func steady(d time.Duration) sspsim.Behaviour {
	return sspsim.Behaviour{Latency: sspsim.Constant(d)}
}

// realistic returns the behaviour of a usual SSP: most responses are no-bids, and the latency is
// lognormal.
func realistic(p50, p99 time.Duration) sspsim.Behaviour {
	return sspsim.Behaviour{Latency: sspsim.Lognormal(p50, p99),
		Response: sspsim.Response{NoBid: sspsim.Share(0.85), Size: sspsim.Size{P50: 1500, P95: 8000}, Echo: true}}
}

// healthyLatency is constant, so that the latency that adbuffer adds shows.
const healthyLatency = 50 * time.Millisecond

func healthyBehaviour() sspsim.Behaviour {
	b := realistic(healthyLatency, healthyLatency)
	b.Latency = sspsim.Constant(healthyLatency)
	return b
}

// small is a request of few bytes.
var small = stage.Get("/fillbuffer?pub=1")

// poisson makes the arrivals of a plan random, and checks that each response belongs to its request.
func poisson(p load.Plan, statuses ...int) load.Plan {
	p.Poisson, p.Statuses, p.Echo = true, statuses, true
	return p
}

// pages sends page requests at a rate. Each must get the status 200.
func pages(rate float64, warm, length time.Duration, path string) load.Plan {
	p := stage.OpenLoop(64, rate, warm, length, stage.Page("page", path))
	p.Statuses = []int{200}
	return p
}

// set gives the SSP of an index a behaviour. At the end of the step it gives it another one, if any.
func set(index int, b sspsim.Behaviour, later *sspsim.Behaviour) func(context.Context, *stage.Stage) (func() error, error) {
	return func(_ context.Context, s *stage.Stage) (func() error, error) {
		if err := s.SSPs[index].Set(b); err != nil || later == nil {
			return nil, err
		}
		return func() error { return s.SSPs[index].Set(*later) }, nil
	}
}

// fresh closes the connections of the first SSP.
func fresh(_ context.Context, s *stage.Stage) (func() error, error) {
	return nil, s.SSPs[0].CloseConnections()
}
