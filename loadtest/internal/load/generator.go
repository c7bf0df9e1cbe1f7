package load

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// generator sends the requests of a run. Each connection has a goroutine that takes due requests.
type generator struct {
	plan      *Plan
	rec       *recorder
	base      time.Time     // start of the first phase
	cost      gauge         // of the generator since then
	due       chan arrival  // of an open loop
	remaining atomic.Int64  // requests that a closed loop may still send, if the plan has a limit
	pause     sync.Once     // starts the plan's pause
	rest      chan struct{} // closed when the pause is over
	stop      context.Context
	fatal     func(error) // records an error and cancels stop
}

// maxBacklog bounds the requests that wait for a connection.
const maxBacklog = 1 << 20

func newGenerator(plan *Plan, rec *recorder) *generator {
	g := &generator{plan: plan, rec: rec, due: make(chan arrival, maxBacklog), rest: make(chan struct{})}
	g.remaining.Store(int64(plan.Requests))
	return g
}

// run connects, sends the requests of all phases, and waits for outstanding responses.
func (g *generator) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g.stop, g.fatal = ctx, func(err error) { cancel(err) }
	clients := make([]*client, g.plan.Connections)
	for i := range clients {
		clients[i] = newClient(g)
	}
	defer func() {
		for _, c := range clients {
			c.close()
		}
	}()
	if g.plan.Protocol != Close {
		g.connect(clients)
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
	g.base, g.cost = time.Now(), newGauge()
	var running sync.WaitGroup
	for _, c := range clients {
		running.Go(c.run)
	}
	if g.plan.Open {
		running.Go(g.pace)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		running.Wait()
	}()
	tick := time.NewTicker(g.plan.Tick)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return context.Cause(ctx)
		case <-tick.C:
			g.rec.endInterval(g.now())
		}
	}
}

func (g *generator) connect(clients []*client) {
	var dials sync.WaitGroup
	limit := make(chan struct{}, 64) // bounds the handshakes at a time; listeners queue more
	for _, c := range clients {
		limit <- struct{}{}
		dials.Go(func() {
			defer func() { <-limit }()
			if err := c.connect(); err != nil {
				g.fatal(err)
			}
		})
	}
	dials.Wait()
}

func (g *generator) now() time.Duration { return time.Since(g.base) }

// pace makes each arrival due at its time.
func (g *generator) pace() {
	defer close(g.due)
	unlock := preciseTimers()
	defer unlock()
	for a := range g.plan.arrivals {
		for wait := a.due - g.now(); wait > 0 && g.stop.Err() == nil; wait = a.due - g.now() {
			sleep(min(wait, 100*time.Millisecond)) // a signal may end it early
		}
		if g.stop.Err() != nil {
			return
		}
		a.lag = g.now() - a.due
		select {
		case g.due <- a:
		default:
			g.rec.seen(a.lag)
			g.failed(g.rec.begin(a), dropped)
		}
	}
}

// next returns the next request to send. ok is false if there is none. next calls flush before it waits.
func (g *generator) next(flush func()) (a arrival, ok bool) {
	if g.stop.Err() != nil {
		return a, false
	}
	if !g.plan.Open {
		ok = g.plan.Requests == 0 || g.takeOne(flush)
		now := g.now()
		return arrival{due: now, phase: g.plan.phaseAt(now)}, ok && now < g.plan.length()
	}
	select {
	case a, ok = <-g.due:
		if ok { // it may have waited for a client, which is the server's fault
			g.rec.seen(a.lag)
		}
		return a, ok
	default:
		flush()
	}
	select {
	case a, ok = <-g.due:
		if ok { // this client was idle
			g.rec.seen(g.now() - a.due)
		}
		return a, ok
	case <-g.stop.Done():
		return a, false
	}
}

// takeOne reports whether a closed loop with a limit may send another request. It waits during the plan's pause.
func (g *generator) takeOne(flush func()) bool {
	after := g.remaining.Add(-1)
	if g.plan.Pause == 0 || after < 0 || after >= int64(g.plan.Requests/2) {
		return after >= 0
	}
	flush()
	g.pause.Do(func() { time.AfterFunc(g.plan.Pause, func() { close(g.rest) }) })
	select {
	case <-g.rest:
		return true
	case <-g.stop.Done():
		return false
	}
}

// begin chooses the request of an arrival and counts it. ok is false if the request has already waited for
// longer than the timeout.
func (g *generator) begin(a arrival) (f flight, ok bool) {
	f = g.rec.begin(a)
	if g.now()-a.due > g.plan.Timeout {
		g.failed(f, noConnection)
		return f, false
	}
	return f, true
}

// failed counts a request without a response. After the end of the run it neither succeeded nor failed.
func (g *generator) failed(f flight, kind string) {
	if g.stop.Err() == nil {
		g.rec.failed(f, kind, g.now())
	}
}

// connectFailed counts a request whose connection could not be opened. If the target refuses connections,
// connectFailed ends the run.
func (g *generator) connectFailed(f flight, err error) {
	if kindOf(err) == Refused {
		g.fatal(err)
	}
	g.failed(f, kindOf(err))
	if !g.plan.Open {
		time.Sleep(10 * time.Millisecond) // the loop would try again at once
	}
}

func (g *generator) dial() (net.Conn, error) {
	d := net.Dialer{Timeout: g.plan.Timeout}
	conn, err := d.DialContext(g.stop, "tcp", g.plan.Addr)
	if err != nil {
		return nil, dialError(g.plan.Addr, err)
	}
	g.rec.connected()
	return conn, nil
}
