package load

import (
	"sync"
)

// Progress is one interval of a run, of all threads.
type Progress struct {
	Tick
	Waiting int // requests without a response
}

// progress joins the threads' intervals and hands them on.
type progress struct {
	report func(Progress) // nil: no progress is reported

	mu      sync.Mutex // guards the fields below
	threads int
	have    int
	sum     Progress
}

func (p *progress) publish(_ int, t Tick, waiting int) {
	if p.report == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.have++
	p.sum.Second = max(p.sum.Second, t.Second)
	p.sum.Answered += t.Answered
	p.sum.Errors += t.Errors
	p.sum.Waiting += waiting
	p.sum.P50, p.sum.P99, p.sum.Max = max(p.sum.P50, t.P50), max(p.sum.P99, t.P99), max(p.sum.Max, t.Max)
	if p.have == p.threads {
		p.report(p.sum)
		p.have, p.sum = 0, Progress{}
	}
}
