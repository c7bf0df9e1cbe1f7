package load

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// workers send requests over TLS. Each worker is a goroutine with one place of a connection: all of
// an HTTP/1 connection, or one stream of an HTTP/2 connection.
type workers struct {
	plan   *Plan
	rec    *recorder
	base   time.Time // start of the first phase
	due    chan arrival
	left   atomic.Int64 // requests that a closed loop may still send
	number atomic.Uint64
	stop   context.Context
	fatal  func(error) // records an error and cancels stop

	mu       sync.Mutex // guards the fields below
	requests *Set
	counts   Counts
}

// place sends one request at a time.
type place interface {
	// do sends r and returns its response, whose slices are valid until the next call. It connects
	// first if the place has no connection.
	do(r *Request, number uint64, deadline time.Time) (*Response, error)
	// connect opens the connection of the place, if there is none.
	connect(deadline time.Time) error
	close()
}

func newWorkers(plan *Plan, rec *recorder) *workers {
	w := &workers{plan: plan, rec: rec, due: make(chan arrival, maxBacklog),
		requests: NewSet(plan.Host, plan.Templates, plan.Protocol == Close, plan.Seed)}
	w.left.Store(-1)
	if plan.Requests > 0 {
		w.left.Store(int64(plan.Requests))
	}
	return w
}

// run connects, sends the requests of all phases, and waits for outstanding responses.
func (w *workers) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w.stop, w.fatal = ctx, func(err error) { cancel(err) }
	places := w.places()
	defer func() {
		for _, p := range places {
			p.close()
		}
	}()
	if w.plan.Protocol != Close {
		var dials sync.WaitGroup
		limit := make(chan struct{}, 64) // bounds the handshakes at a time
		for _, p := range places {
			limit <- struct{}{}
			dials.Go(func() {
				defer func() { <-limit }()
				if err := p.connect(time.Now().Add(w.plan.Timeout)); err != nil {
					w.fatal(err)
				}
			})
		}
		dials.Wait()
		if err := cause(ctx); err != nil {
			return err
		}
	}
	w.base = time.Now()
	var running sync.WaitGroup
	for _, p := range places {
		running.Go(func() {
			if w.plan.Open {
				for a := range w.due {
					w.once(p, a)
				}
				return
			}
			w.closedLoop(p)
		})
	}
	ticks := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() { w.tick(ticks) })
	if w.plan.Open {
		w.pace()
		close(w.due)
	}
	running.Wait()
	close(ticks)
	ticking.Wait()
	return cause(ctx)
}

// pace sends each arrival to the workers at its time.
func (w *workers) pace() {
	s := newSchedule(w.plan, 0, 1)
	unlock := preciseTimers()
	defer unlock()
	for {
		a, ok := s.Next()
		if !ok || w.stop.Err() != nil {
			return
		}
		for wait := a.due - time.Since(w.base); wait > 0; wait = a.due - time.Since(w.base) {
			sleep(wait) // a signal may end it early
		}
		w.rec.Due(time.Since(w.base) - a.due)
		select {
		case w.due <- a:
		default:
			w.failed(a, dropped)
		}
	}
}

func (w *workers) failed(a arrival, kind string) {
	r := w.send(a)
	w.rec.Failed(int(a.phase), r.Class, kind, time.Since(w.base)-a.due)
}

// send chooses a request and counts it as sent.
func (w *workers) send(a arrival) *Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.requests.Next()
	w.rec.Sent(int(a.phase), r.Class)
	return r
}

func (w *workers) closedLoop(p place) {
	length := w.plan.length()
	for w.stop.Err() == nil {
		now := time.Since(w.base)
		if now >= length {
			return
		}
		if w.plan.Requests > 0 && w.left.Add(-1) < 0 {
			return
		}
		w.once(p, arrival{now, int32(w.plan.phaseAt(now))})
	}
}

// once sends one request and counts its response.
func (w *workers) once(p place, a arrival) {
	if w.stop.Err() != nil {
		return
	}
	if time.Since(w.base)-a.due > w.plan.Timeout {
		w.failed(a, noConnection)
		return
	}
	r, n := w.send(a), w.number.Add(1)
	response, err := p.do(r, n, time.Now().Add(w.plan.Timeout))
	now := time.Since(w.base)
	if err != nil {
		if w.stop.Err() != nil {
			return
		}
		kind := kindOf(err)
		if kind == Refused {
			w.fatal(err)
		}
		w.rec.Failed(int(a.phase), r.Class, kind, now-a.due)
		return
	}
	w.rec.Received(int(a.phase), r.Class, n, response, now-a.due, now)
}

func (w *workers) tick(stop <-chan struct{}) {
	t := time.NewTicker(w.plan.Tick)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
			w.rec.Tick(time.Since(w.base))
		}
	}
}

// dialTLS connects, completes the TLS handshake before deadline, and counts both.
func (w *workers) dialTLS(deadline time.Time) (*tls.Conn, error) {
	d := net.Dialer{Deadline: deadline}
	raw, err := d.DialContext(w.stop, "tcp", w.plan.Addr)
	if err != nil {
		return nil, dialError(w.plan.Addr, err)
	}
	conn := tls.Client(raw, w.plan.tls)
	_ = conn.SetDeadline(deadline)
	if err := conn.HandshakeContext(w.stop); err != nil {
		raw.Close()
		return nil, &kindError{noConnect, err}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.TCP++
	w.counts.TLS++
	if conn.ConnectionState().DidResume {
		w.counts.Resumed++
	}
	return conn, nil
}

func (w *workers) count(add func(*Counts)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	add(&w.counts)
}
