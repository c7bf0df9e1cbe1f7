package chaos

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"adbuffer/internal/test/sspsim"
	"adbuffer/loadtest/internal/rig"
)

// group is the state of the SSP with two primaries and a spare.
type group struct {
	since         atomic.Int64 // when the primaries began to fail, in nanoseconds since 1970; 0 if they work
	sent, carried atomic.Uint64
	probes        atomic.Uint64 // requests that may have failed as probes of primaries
}

// takeover is the time in which the spare must take over.
const takeover = 10 * time.Second

// probesOfPrimaries is how many requests may be sent to failing primaries as probes in one outage: one for each
// primary of each instance that is judged.
const probesOfPrimaries = 4

// groupBehaviours are the ways in which all primaries fail. Slow primaries respond after every deadline.
var groupBehaviours = []namedBehaviour{
	{name: "all primaries respond 500", behaviour: sspsim.Behaviour{Faults: sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always, Code: 500}}}},
	{name: "all primaries hang", behaviour: sspsim.Behaviour{Faults: sspsim.Faults{Hang: sspsim.Always, Stall: sspsim.Always}}},
	{name: "all primaries are slow", behaviour: sspsim.Behaviour{Latency: sspsim.Constant(2 * maxDeadline)}},
}

// failPrimaries makes all primaries of the group fail, again and again. They work while clients pause.
func (r *run) failPrimaries(ctx context.Context, rnd *rand.Rand) {
	s := r.ssps[r.named("group")]
	set := func(m namedBehaviour) {
		m.behaviour.Response.Echo = true
		for _, primary := range s.sims[:2] {
			r.Check(primary.Set(m.behaviour))
		}
		s.current.Store(m.name)
		r.behavioursSeen.add(m.name, "")
	}
	for ctx.Err() == nil {
		m := groupBehaviours[rnd.IntN(len(groupBehaviours))]
		if !r.selects(m.name) || r.pausing.Load() {
			rig.Sleep(ctx, 10*time.Millisecond)
			continue
		}
		began := time.Now()
		set(m)
		r.group.since.Store(began.UnixNano())
		for !r.pausing.Load() && ctx.Err() == nil && time.Since(began) < 2*takeover {
			rig.Sleep(ctx, 100*time.Millisecond)
		}
		r.group.since.Store(0)
		if time.Since(began) > takeover {
			r.group.probes.Add(probesOfPrimaries)
		}
		set(namedBehaviour{name: "healthy", behaviour: healthy})
		for repaired := time.Now(); ctx.Err() == nil && time.Since(repaired) < takeover/2; {
			rig.Sleep(ctx, 100*time.Millisecond)
		}
	}
}

// settled returns when the primaries began to fail, or 0 if the spare need not have taken over yet.
func (g *group) settled() int64 {
	since := g.since.Load()
	if since == 0 || time.Since(time.Unix(0, since)) < takeover {
		return 0
	}
	return since
}

// judge counts the response to a request that the spare had to carry.
func (g *group) judge(a *request, p *response) {
	if g.since.Load() != a.outage {
		return // the primaries work again
	}
	g.sent.Add(1)
	if p.header.Get("X-Adbuffer-Source") == "ssp/group" && (p.status == 200 || p.status == 204) {
		g.carried.Add(1)
	}
}

// judgeGroup breaks a promise if the spare carried too few requests.
func (r *run) judgeGroup() {
	sent, got, probes := r.group.sent.Load(), r.group.carried.Load(), r.group.probes.Load()
	if float64(got+probes) < 0.99*float64(sent) || sent == 0 && r.isLong() {
		r.broken.add(carried, "%d of %d, and at most %d were probes", got, sent, probes)
	}
}
