package load

import (
	"context"
	"errors"
	"time"
)

// loop sends the requests of one thread. Only the recorder is shared with other threads.
type loop struct {
	plan     *Plan
	addr     *sockaddr
	poller   *poller
	requests *Set
	rec      *recorder

	conns   []*conn
	free    queue[*conn] // connections with a free place, longest idle first
	dirty   []*conn
	dead    []*conn // closed connections that the loop opens again
	backlog queue[arrival]
	buf     []byte

	schedule *schedule
	next     arrival // its time counts from started
	more     bool    // next is valid

	base     time.Time
	running  bool          // the first phase has begun
	started  time.Duration // start of the first phase, since base
	length   time.Duration // total of all phases
	number   uint64        // number of the last request
	quota    int           // requests that a closed loop may still send; negative is no limit
	inFlight int
	nextScan time.Duration // time of the next scan for timeouts
	dialing  int

	counts Counts
	fatal  error
	busy   float64 // share of time that the thread ran
}

// maxDialing bounds the connects in flight. Listeners queue more.
const maxDialing = 256

// scanEvery is the interval between two scans for timeouts.
const scanEvery = 10 * time.Millisecond

func newLoop(plan *Plan, part int, rec *recorder) (*loop, error) {
	addr, err := resolve(plan.Addr)
	if err != nil {
		return nil, err
	}
	poller, err := newPoller(512)
	if err != nil {
		return nil, err
	}
	l := &loop{plan: plan, addr: addr, poller: poller, rec: rec, buf: make([]byte, 256<<10),
		requests: NewSet(plan.Host, plan.Templates, plan.Protocol == Close, plan.Seed+uint64(part)),
		length:   plan.length(), quota: -1, number: uint64(part) * 1e9}
	if plan.Requests > 0 {
		l.quota = share(plan.Requests, part, plan.Threads)
	}
	if plan.Open {
		l.schedule = newSchedule(plan, part, plan.Threads)
	}
	for i := range share(plan.Connections, part, plan.Threads) {
		l.conns = append(l.conns, &conn{key: int32(i), fd: -1})
	}
	return l, nil
}

// share returns the share of one part when n is divided among parts.
func share(n, part, parts int) int {
	if part < n%parts {
		return n/parts + 1
	}
	return n / parts
}

func (l *loop) now() time.Duration { return time.Since(l.base) }

// connect opens the keep-alive connections before the first phase.
func (l *loop) connect(ctx context.Context) error {
	l.base = time.Now()
	if l.plan.Protocol == Close {
		for _, c := range l.conns {
			l.release(c)
		}
		return nil
	}
	l.dead = append(l.dead, l.conns...)
	for l.countOpen() < len(l.conns) {
		if err := l.poll(100 * time.Millisecond); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if l.now() > l.plan.Timeout+time.Duration(len(l.conns))*time.Millisecond {
			return errors.New("the target does not take the connections in time")
		}
	}
	return nil
}

func (l *loop) countOpen() (n int) {
	for _, c := range l.conns {
		if c.state == open {
			n++
		}
	}
	return n
}

// run sends the requests of all phases, then waits for outstanding responses.
func (l *loop) run(ctx context.Context) error {
	unlock := preciseTimers()
	defer unlock()
	l.running, l.started = true, l.now()
	cpu := threadCPU()
	defer func() { l.busy = float64(threadCPU()-cpu) / float64(l.now()-l.started) }()
	if l.plan.Open {
		l.next, l.more = l.schedule.Next()
	} else {
		for range l.conns {
			if c := l.takeFree(); c != nil {
				l.refill(c, l.now())
			}
		}
	}
	for done := ctx.Done(); ; {
		select {
		case <-done:
			return nil // outstanding requests count neither as successful nor as failed
		default:
		}
		now := l.now()
		if l.plan.Open {
			l.takeDue(now)
			l.sendDue(now)
		}
		if l.finished(now) {
			break
		}
		if err := l.poll(l.wait(l.now())); err != nil {
			return err
		}
	}
	return nil
}

func (l *loop) finished(now time.Duration) bool {
	if l.inFlight > 0 {
		return false
	}
	if l.plan.Open {
		return !l.more && l.backlog.count == 0
	}
	return l.quota == 0 || now-l.started >= l.length
}

// wait returns the time until the loop must send or scan for timeouts.
func (l *loop) wait(now time.Duration) time.Duration {
	w := scanEvery
	if l.plan.Open && l.more {
		w = min(w, l.started+l.next.due-now)
	}
	return max(w, 0)
}

// takeDue moves due requests into the backlog.
func (l *loop) takeDue(now time.Duration) {
	for l.more && l.started+l.next.due <= now {
		due := l.started + l.next.due
		l.rec.Due(now - due)
		if a := (arrival{due, l.next.phase}); l.backlog.count < maxBacklog {
			l.backlog.push(a)
		} else {
			l.fail(a, dropped, now)
		}
		l.next, l.more = l.schedule.Next()
	}
}

// sendDue sends the backlog on connections with a free place.
func (l *loop) sendDue(now time.Duration) {
	for l.backlog.count > 0 {
		c := l.takeFree()
		if c == nil {
			break
		}
		a := l.backlog.pop()
		l.send(c, a.due, a.phase, now)
		if !l.full(c) {
			l.release(c)
		}
	}
	for l.backlog.count > 0 && now-l.backlog.first().due > l.plan.Timeout {
		l.fail(l.backlog.pop(), noConnection, now)
	}
}

// fail counts a request that was never sent.
func (l *loop) fail(a arrival, kind string, now time.Duration) {
	class := l.requests.Next().Class
	l.rec.Sent(int(a.phase), class)
	l.rec.Failed(int(a.phase), class, kind, now-a.due)
}

// refill sends requests on c until all its places are in use. Only closed loops call it.
func (l *loop) refill(c *conn, now time.Duration) {
	since := now - l.started
	for !l.full(c) && l.quota != 0 && since < l.length {
		if l.quota > 0 {
			l.quota--
		}
		l.send(c, now, int32(l.plan.phaseAt(since)), now)
	}
}

// send appends a request to c, which has a free place. It opens c if c is closed.
func (l *loop) send(c *conn, due time.Duration, phase int32, now time.Duration) {
	r := l.requests.Next()
	l.number++
	c.out = r.Append(c.out, l.number)
	c.flights.push(flight{due: due, sent: now, number: l.number, phase: phase, class: int32(r.Class)})
	l.inFlight++
	l.rec.Sent(int(phase), r.Class)
	if c.state == closed {
		l.dial(c, now)
		return
	}
	l.markDirty(c)
}

// markDirty lists c: poll writes to listed connections before it waits.
func (l *loop) markDirty(c *conn) {
	if !c.dirty {
		c.dirty = true
		l.dirty = append(l.dirty, c)
	}
}

// full reports whether all places of c are in use.
func (l *loop) full(c *conn) bool { return c.flights.count == l.plan.Depth }

func (l *loop) release(c *conn) {
	if !c.listed {
		c.listed = true
		l.free.push(c)
	}
}

// takeFree returns a connection with a free place, or nil. It skips failed connections.
func (l *loop) takeFree() *conn {
	for l.free.count > 0 {
		c := l.free.pop()
		c.listed = false
		if c.state == open || l.plan.Protocol == Close && c.flights.count == 0 {
			return c
		}
	}
	return nil
}

// poll writes to listed connections, waits for at most timeout, and handles ready sockets.
func (l *loop) poll(timeout time.Duration) error {
	for i := 0; i < len(l.dirty); i++ {
		c := l.dirty[i]
		c.dirty = false
		if c.state == open {
			l.flush(c)
		}
	}
	l.dirty = l.dirty[:0]
	l.redial()
	if l.fatal != nil {
		return l.fatal
	}
	events, err := l.poller.Wait(timeout)
	if err != nil {
		return err
	}
	for _, e := range events {
		if c := l.conns[e.Key]; c.state != closed {
			l.handle(c, e)
		}
	}
	now := l.now()
	if now >= l.nextScan {
		l.nextScan = now + scanEvery
		l.expire(now)
	}
	if l.running {
		l.rec.Tick(now - l.started)
	}
	return l.fatal
}
