package chaos

import (
	"fmt"
	"strings"
	"time"

	"adbuffer/loadtest/internal/results"
)

// report writes what was seen, and which promises held.
func (r *run) report(rep *results.Report) {
	keys, counts, sum := r.tally.all()
	responses := results.Table{Title: fmt.Sprintf("%d requests in %v, seed %d", sum, r.options.For, r.options.Seed), Columns: []string{"response", "requests"}}
	for _, key := range keys {
		responses.Add(nil, key, counts[key])
	}
	grown := results.Table{Title: "what each process holds while clients pause, medians of the second and the last third, and the most while they are busy",
		Columns: []string{"adbuffer", "quantity", "second third", "last third", "most, busy"}}
	for _, st := range r.instances {
		r.compare(st, &grown)
	}
	for _, s := range r.ssps {
		if c := s.Counters(); c.BadRequests > 0 {
			r.broken.add(altered, "SSP %s refused %d requests of adbuffer, such as: %s", s.name, c.BadRequests, c.LastBadRequest)
		}
	}
	asked, answered := r.healthy.asked.Load(), r.healthy.answered.Load()
	// So many of a short run's may fail for what the machine does meanwhile.
	const share, few = 0.001, 5
	if float64(asked-answered) > max(few, share*float64(asked)) || asked == 0 {
		r.broken.add(spared, "%d of %d succeeded", answered, asked)
	}
	for p := range promises {
		v := results.Verdict{Promise: promiseText[p], Held: true, Words: r.wordsFor(p)}
		if n, examples := r.broken.of(p); n > 0 {
			v.Held = false
			v.Words = fmt.Sprintf("%d times: %s", n, strings.Join(examples, "; "))
		}
		rep.Verdicts = append(rep.Verdicts, v)
	}
	rep.Tables = []results.Table{responses, r.changes(), grown}
	rep.Notes = []string{
		fmt.Sprintf("The machine stood still for %v, and threads of this process waited for a core for %v, which does not count. Responses: %v.",
			time.Duration(r.freezes.sum.Load()).Round(time.Millisecond), time.Duration(r.stalls.sum.Load()).Round(time.Millisecond), &r.overrun),
		fmt.Sprintf("adbuffer's processes wrote %s of log.", results.MiB(int64(r.logBytes.Load()))),
		"What the seed decides is what is drawn, not the order in which it happens.",
	}
}

// wordsFor says how a promise was kept.
func (r *run) wordsFor(p promise) string {
	switch p {
	case late:
		return fmt.Sprintf("Allowance %v. %v.", r.options.Allowance, &r.overrun)
	case lost:
		return fmt.Sprintf("%d requests ended without a response, and no SSP had been given one of them.", len(r.unanswered))
	case spared:
		return fmt.Sprintf("%d of %d.", r.healthy.answered.Load(), r.healthy.asked.Load())
	}
	return ""
}

// changes is a table of what happened around the traffic.
func (r *run) changes() results.Table {
	t := results.Table{Title: "what happened meanwhile", Columns: []string{"event", "times"}}
	for _, st := range r.instances {
		t.Add(nil, st.name+": reloads", st.reloads)
		t.Add(nil, st.name+": hand-overs", st.handovers)
	}
	for _, each := range []struct {
		who string
		*tally
	}{{"an SSP: ", &r.behavioursSeen}, {"a hostile client: ", &r.attacksSeen}} {
		keys, counts, _ := each.all()
		for _, key := range keys {
			t.Add(nil, each.who+key, counts[key])
		}
	}
	return t
}
