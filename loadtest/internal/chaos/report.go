package chaos

import (
	"fmt"
	"strings"
	"time"

	"adbuffer/loadtest/internal/results"
)

func (r *run) report(rep *results.Report) {
	keys, counts, sum := r.tally.all()
	responses := rep.Table(fmt.Sprintf("%d requests in %v, seed %d", sum, r.options.length, r.options.seed), "response", "requests")
	for _, key := range keys {
		responses.Add(nil, key, counts[key])
	}
	r.changes(rep.Table("what happened meanwhile", "event", "times"))
	grown := rep.Table("what each process holds while clients pause, medians of the second and the last third, and the most while clients send",
		"adbuffer", "quantity", "second third", "last third", "most, busy")
	for _, st := range r.instances {
		r.compare(st, grown)
	}
	for _, s := range r.ssps {
		for _, sim := range s.sims {
			if c := sim.Counters(); c.BadRequests > 0 {
				r.broken.add(altered, "SSP %s refused %d requests of adbuffer, such as: %s", s.name, c.BadRequests, c.LastBadRequest)
			}
		}
	}
	r.judgeVariety(len(keys))
	r.judgeHealthy()
	r.judgeGroup()
	first, second := r.ssps[r.named("turns")].sims[0].Counters().Requests, r.ssps[r.named("turns")].sims[1].Counters().Requests
	r.judgeTurns(first, second)
	r.checkExcuses(sum)
	words := map[promise]string{
		late:    fmt.Sprintf("Allowance %v. %v.", allowance, &r.overrun),
		lost:    fmt.Sprintf("%d requests ended without a response, and no SSP received one of them.", len(r.log.unanswered)),
		spared:  fmt.Sprintf("%d of %d.", r.healthy.succeeded.Load(), r.healthy.sent.Load()),
		turns:   fmt.Sprintf("%d and %d.", first, second),
		carried: fmt.Sprintf("%d of %d.", r.group.carried.Load(), r.group.sent.Load()),
	}
	for _, p := range promises {
		v := results.Verdict{Promise: string(p), Held: true, Words: words[p]}
		if n, examples := r.broken.of(string(p)); n > 0 {
			v.Held = false
			v.Words = fmt.Sprintf("%d times: %s", n, strings.Join(examples, "; "))
		}
		rep.Verdicts = append(rep.Verdicts, v)
	}
	rep.Notes = []string{
		fmt.Sprintf("The machine stood still, or let requests wait for a core, for %v. Responses: %v.", r.taken(), &r.overrun),
		fmt.Sprintf("%s. A promise is broken if more than %.0f %% of the requests have to be excused.", r.excusesInWords(), 100*maxExcusedShare),
		"The seed decides what is drawn, but not the order in which it happens.",
	}
}

func (r *run) changes(t *results.Table) {
	for _, st := range r.instances {
		t.Add(nil, st.name+": reloads", st.reloads)
		t.Add(nil, st.name+": hand-overs", st.handovers)
	}
	for _, each := range []struct {
		party string
		*tally
	}{{"an SSP: ", &r.behavioursSeen}, {"a hostile client: ", &r.attacksSeen}} {
		keys, counts, _ := each.all()
		for _, key := range keys {
			t.Add(nil, each.party+key, counts[key])
		}
	}
}

// judgeHealthy breaks a promise if too few requests to healthy SSPs succeeded.
func (r *run) judgeHealthy() {
	sent, succeeded := r.healthy.sent.Load(), r.healthy.succeeded.Load()
	const minShare = 0.999
	excused, _ := r.excused.of(string(spared))
	if float64(succeeded+excused) < minShare*float64(sent) || sent == 0 {
		r.broken.add(spared, "%d of %d succeeded, and %d were excused", succeeded, sent, excused)
	}
}

// judgeTurns breaks a promise if an endpoint got too few or too many requests. Less than 200 of them are no evidence,
// and a long run must have evidence.
func (r *run) judgeTurns(first, second uint64) {
	share, enough := float64(second)/float64(first+second), first+second >= 200
	if enough && (share < 0.2 || share > 0.3) || !enough && r.isLong() {
		r.broken.add(turns, "%d and %d requests", first, second)
	}
}

// isLong reports whether the run is long enough, and complete enough, for each kind of request to occur often. Then a
// promise about which no request said anything counts as broken.
func (r *run) isLong() bool { return r.options.length >= 2*time.Minute && r.options.only == "" }

// judgeVariety breaks a promise if the clients of a long run got few kinds of responses: then the SSPs' behaviours did
// not occur, or no limit chose what it dropped.
func (r *run) judgeVariety(kinds int) {
	shaped, _ := r.tally.of("204 proxy/shaped")
	if (kinds < minKinds || shaped == 0) && r.isLong() {
		r.broken.add(mixed, "there were %d kinds of responses, and qps.shape dropped %d requests, which shows too little", kinds, shaped)
	}
}

// minKinds is how many kinds of responses, by status and source, a long run has at least. A run of two minutes has
// more than thirty.
const minKinds = 15

func (r *run) taken() string {
	var out []string
	for _, st := range r.instances {
		out = append(out, fmt.Sprintf("%v (%s)", st.stalls.total().Round(time.Millisecond), st.name))
	}
	return strings.Join(out, ", ")
}

func (r *run) excusesInWords() string {
	var out []string
	names, counts, _ := r.excused.all()
	for _, name := range names {
		out = append(out, fmt.Sprintf("%d: %s", counts[name], name))
	}
	if len(out) == 0 {
		return "No stall of the machine excused anything"
	}
	return "Excused, since the machine stood still meanwhile: " + strings.Join(out, "; ")
}
