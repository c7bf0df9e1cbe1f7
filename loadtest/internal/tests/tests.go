// Package tests has the load tests. Each is a function that starts programs, loads them, measures, and
// writes tables and verdicts. Its promises are functions of their own, which judge what was measured.
package tests

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
)

// Command is a load test on the command line.
type Command struct {
	Name, Short string
	Question    string // which the help and the report show
	Long        string // more for the help; may be ""
	Test        func(*rig.Rig)

	Example string
	Alone   bool                       // it takes minutes at any scale, so that the command all leaves it out
	Flags   func(*pflag.FlagSet)       // adds flags of its own; nil adds none
	Check   func(*pflag.FlagSet) error // checks them; nil checks nothing
}

// Commands returns the tests in the order in which the command all runs them.
func Commands() []Command {
	return append(slices.Clone(plain), soakCommand(), peersCommand(), incidentsCommand(), sizingCommand())
}

// plain are the tests without flags of their own.
var plain = []Command{
	{Name: "keepalive", Short: "500 sequential requests: a connection each against keep-alive",
		Question: "What does it cost an application to open a connection for every request, and how much of that remains behind adbuffer?",
		Long:     "Sends them straight to an SSP and through adbuffer, from curl, Node and the generator.", Test: keepAlive},
	{Name: "pipeline", Short: "10 000 requests: pipelined, by workers, at once",
		Question: "What does it save to send requests without waiting for responses, and can applications that do not pipeline have it from adbuffer?",
		Long:     "Sends 100 pipelines of 100, from 100 workers, and all at once, straight to an SSP and through adbuffer.", Test: pipeline},
	{Name: "pools", Short: "Throughput by pool size and latency, held against N / X",
		Question: "How many places must a pool have, and what happens without one?",
		Long: `Measures pools of 100 to 2 000 places against SSPs that take 10 ms to 1 s, over http,
https and h2, and without a pool; and a queue that overflows. Below --scale 0.5 the
matrix has three sizes and three latencies.`, Test: pools},
	{Name: "rules", Short: "Keep-alive on and off with ab and wrk, and the ports",
		Question: "What do the usual tools measure with keep-alive and without, and do ports run out?",
		Test:     rules},
	{Name: "adproxy", Short: "ab without keep-alive: fastify, a fasthttp sketch, adbuffer",
		Question: "How do the two prototypes, a fixed JSON in Node and in Go, compare with adbuffer, when clients open a connection per request?",
		Long: `Runs ab -n 1000000 with -c 100 and -c 500 on /fillbuffer of a fastify program, a
fasthttp program and adbuffer, for constant and forwarded responses.`, Test: adProxy},
	{Name: "sick", Short: "One of eight SSPs is sick in eight ways",
		Question: "Does an SSP that hangs, refuses, resets, drips or is slow cost the other SSPs anything?",
		Long:     "It hangs, refuses, drops SYNs, resets, responds 503, drips, is slow, or sends GOAWAY.", Test: sick},
	{Name: "cold", Short: "600 requests at once on a cold start",
		Question: "How many connections does a cold start cost the SSP, and how long do its first requests wait?",
		Test:     cold},
	{Name: "churn", Short: "SSPs that close connections",
		Question: "Are requests lost when the SSP closes the connections that are kept to it?",
		Long:     "They close after 100 requests or when they are idle.", Test: churn},
	{Name: "burst", Short: "From nothing to the peak in two seconds",
		Question: "Do the first requests of an ad break suffer, cold and warmed?",
		Test:     burst},
	{Name: "endpoints", Short: "One of two endpoints fails, beside Envoy and HAProxy",
		Question: "How many requests does an endpoint cost that fails, and how soon is it back after it was repaired?",
		Long: `Makes one of an SSP's two endpoints respond 500 to everything, and later repairs it. Measures what
that costs with ejection and without it, and at Envoy (outlier detection) and HAProxy (observe
layer7): set $ENVOY or see scripts/envoy. Then an endpoint of priority 0 dies and
comes back, all primaries fail, hang or are slow beside a spare (at Envoy by priority, at HAProxy a
backup), and a mirror is a black hole: how soon do requests move, and what does p99 lose?`, Test: endpoints},
	{Name: "fairness", Short: "One client or one SSP attacks, and other clients must not feel it",
		Question: "Does anything that one client or one SSP sends hurt other clients?",
		Long: `Attacks adbuffer with what a single client or a single SSP can send: bodies and lengths
that are claimed and do not come, streams without bodies, 429 with Retry-After. Calm and
attacked rounds take turns; the success and p99 of other clients are compared.`, Test: fairness},
	{Name: "overload", Short: "More than one core carries, and a key that sends too many, beside Envoy and HAProxy",
		Question: "Does goodput survive overload, are the right requests refused, and does a noisy publisher cost the others?",
		Long: `Offers half to four times what one core carries: goodput, late responses, refusals by priority, beside
Envoy (overload manager) and HAProxy. Then a noisy neighbour takes a third of the core, 10 000 clients
connect at once to a cold core, one key sends 10 and 100 times its share, and each of 100 000 requests
has a key of its own.`, Test: overload},
	{Name: "exchange", Short: "Five SSPs, with filters on bid requests and without, beside HAProxy",
		Question: "How many queries, and how much CPU, do filters save, and what do they cost beside HAProxy's json_query?",
		Long: `Sends bid requests to five SSPs that each want 30 % of them, with conditions (when) and without: to all
five, merged into one BidResponse, and to one of them, as HAProxy does by json_query. Counts queries and
fills, and measures CPU.`, Test: exchange},
	{Name: "story", Short: "A pool that gets too small, and the alerts: seven minutes",
		Question: "Does an alert fire before the first request is refused, and does the advised size end the waiting?",
		Long: `Slows an SSP down from 80 to 200 ms while requests keep coming at one rate. A real Prometheus
scrapes adbuffer with the rules of deploy/prometheus.`, Test: story, Alone: true},
}

// rounds has the figures of the rounds of one situation; nil was not measured.
type rounds []*rig.Figures

func (r rounds) values(figure func(*rig.Figures) float64) (all []float64) {
	for _, f := range r {
		if f != nil {
			all = append(all, figure(f))
		}
	}
	return all
}

// median returns the median of a figure. Of no rounds it is NaN.
func (r rounds) median(figure func(*rig.Figures) float64) float64 {
	return rig.Median(r.values(figure))
}

// ratios compares situations round by round, because the speed of the machine differs between rounds.
func (r rounds) ratios(base rounds, figure func(*rig.Figures) float64) (all []float64) {
	for i := range min(len(r), len(base)) {
		if r[i] != nil && base[i] != nil && figure(base[i]) > 0 {
			all = append(all, figure(r[i])/figure(base[i]))
		}
	}
	return all
}

// counts adds the counts of some classes of the requests, or of all for none.
func (r rounds) counts(classes ...string) (sum load.Summary) {
	add := func(s load.Summary) {
		sum.Offered, sum.Answered, sum.Failed = sum.Offered+s.Offered, sum.Answered+s.Answered, sum.Failed+s.Failed
	}
	for _, f := range r {
		if len(classes) == 0 {
			add(f.Summary)
		}
		for _, class := range classes {
			add(f.Class(class))
		}
	}
	return sum
}

// doubts returns the doubts about the figures, each once.
func (r rounds) doubts() (all []string) {
	for _, f := range r {
		if f != nil {
			all = append(all, f.Doubts...)
		}
	}
	return distinct(all)
}

func p50(f *rig.Figures) float64   { return f.Latency.P50 }
func p99(f *rig.Figures) float64   { return f.Latency.P99 }
func p999(f *rig.Figures) float64  { return f.Latency.P999 }
func cpuUs(f *rig.Figures) float64 { return f.CPUus }

// distinct returns each of some texts once, in the order of its first occurrence.
func distinct(all []string) (out []string) {
	for _, text := range all {
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// turns has the rounds of two situations that took turns, so that other work of the machine slows both.
type turns struct{ calm, disturbed rounds }

func inTurn(e *rig.Rig, times int, what string, calm, disturbed func() *rig.Figures) (t turns) {
	for n := range times {
		e.Next("%s, round %d of %d", what, n+1, times)
		t.calm, t.disturbed = append(t.calm, calm()), append(t.disturbed, disturbed())
	}
	return t
}

func (t turns) doubts() []string { return slices.Concat(t.calm, t.disturbed).doubts() }

func share(part, whole uint64) float64 { return float64(part) / float64(whole) }

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
var small = rig.Get("/fillbuffer?pub=1")

// poisson makes the arrivals of a plan random, and checks that each response belongs to its request.
func poisson(p load.Plan, statuses ...int) load.Plan {
	p.Poisson, p.Statuses, p.Echo = true, statuses, true
	return p
}

// pages sends page requests at a rate. Each must get the status 200.
func pages(rate float64, warm, length time.Duration, path string) load.Plan {
	p := rig.OpenLoop(64, rate, warm, length, rig.Page("page", path))
	p.Statuses = []int{200}
	return p
}

// limits returns the keys of a pool with so many connections and waiting requests.
func limits(conns, pending int, timeout string) string {
	return fmt.Sprintf("max_conns: %d, max_pending: %d, pending_timeout: %s", conns, pending, timeout)
}
