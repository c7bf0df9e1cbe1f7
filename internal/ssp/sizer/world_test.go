//go:build !race

// These files simulate pools whose size is decided by a controller: arrivals, dials, a queue,
// deadlines and an SSP. It drives the sizer that the pool uses.
package sizer

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Times are in seconds since the beginning of the simulation.
const (
	deadline    = 0.3
	dialTime    = 0.03
	dialsMost   = 16
	tick        = 0.1
	pendingTime = 0.05 // pool.pending_timeout
	pendingMost = 512  // pool.max_pending
	never       = math.MaxFloat64
)

func at(t float64) time.Time { return epoch.Add(time.Duration(t * float64(time.Second))) }

// traffic is the load and the SSP of a scenario. Functions of a time may be nil.
type traffic struct {
	rate    func(t float64) float64 // requests per second
	most    float64                 // the highest rate
	batch   float64                 // the mean size of a batch; 0 or 1 is Poisson
	service func(t float64) float64 // multiplies the service time
	// speed is how fast each of n requests in service advances: 1 is the SSP without load.
	speed func(t float64, n int) float64
	// hangs is the share of the requests that the SSP never responds to.
	hangs   func(t float64) float64
	limit   func(t float64) int // the SSP's limit of streams, where it changes
	again   int                 // how often a client sends a failed request again
	dials   func(t float64) float64
	refuses func(t float64) bool // dials fail, and the pool pauses
	// endpoints is how many the SSP has; the first one is lost at some times: its connections close.
	endpoints int
	lost      func(t float64) bool
	depth     int // of pipelined connections; 0 means that there are none
	beside    func() beside
	length    float64
	start     int // places at the beginning
	max       int // max_conns
}

// request is one in the pool.
type request struct {
	by      float64 // its deadline
	began   float64 // in service since
	finish  float64 // in virtual time of the SSP
	state   uint8   // waiting, serving, over
	tries   int
	waited  bool
	arrived float64
	second  bool     // a hedge
	twin    *request // the other attempt, if there are two
	pipe    *pipe    // its connection, if that is pipelined
}

const (
	waiting = iota
	serving
	over
)

// services are the requests in service, by their end in virtual time.
type services []*request

func (s services) Len() int           { return len(s) }
func (s services) Less(i, j int) bool { return s[i].finish < s[j].finish }
func (s services) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *services) Push(x any)        { *s = append(*s, x.(*request)) }
func (s *services) Pop() any {
	old := *s
	r := old[len(old)-1]
	*s = old[:len(old)-1]
	return r
}

// fifo is a queue of requests.
type fifo struct {
	all  []*request
	head int
}

func (f *fifo) push(r *request) { f.all = append(f.all, r) }
func (f *fifo) empty() bool     { return f.head == len(f.all) }
func (f *fifo) front() *request { return f.all[f.head] }
func (f *fifo) pop() *request {
	r := f.all[f.head]
	f.all[f.head] = nil
	f.head++
	if f.head > 1000 && f.head*2 > len(f.all) {
		f.all = append(f.all[:0], f.all[f.head:]...)
		f.head = 0
	}
	return r
}

// controller decides a pool's limit.
type controller interface {
	// decide is called each 100 ms, and returns the limit.
	decide(w *world, x Sample) int
}

// world is one pool and its SSP.
type world struct {
	traffic
	rng        *rand.Rand
	controller controller

	now     float64
	virtual float64 // how far a request in service has advanced since the beginning
	limit   int     // places

	open, busy, dialling int // places
	inService            int
	queue                fifo // of waiting requests
	pending              fifo // those that wait for the limit
	deadlines            fifo
	waiting              int // in the queue
	serving              services
	dialEnds             []float64
	retries              []retry // requests that are sent again
	nextArrival          float64
	nextTick             float64
	others               int // requests of other replicas at the same SSP
	parts                beside
	pipes                []*pipe
	isLost               bool    // an endpoint
	draining             int     // connections that close when they are released
	paused, pause        float64 // no dial begins before; the length of the last pause

	sample  Sample
	seconds []second
}

// retry is the arrival of a request that is sent again.
type retry struct {
	at    float64
	tries int
}

// second counts the events of one second.
type second struct {
	arrivals, waits, good, refused, opened int
	limit                                  int
	wait                                   []float64
}

func newWorld(t traffic, seed uint64, c controller) *world {
	w := &world{traffic: t, nextTick: tick, rng: rand.New(rand.NewPCG(seed, 7)), controller: c, limit: t.start}
	w.nextArrival = w.drawArrival()
	if t.beside != nil {
		w.parts = t.beside()
	}
	return w
}

func (w *world) drawArrival() float64 {
	batch := max(1, w.batch)
	for t := w.now; ; { // thinning
		t += w.rng.ExpFloat64() * batch / w.most
		if t > w.length {
			return never
		}
		if w.rng.Float64() < w.rate(t)/w.most {
			return t
		}
	}
}

// lognormal service with quantiles 80 ms (50 %) and 250 ms (99 %).
var (
	serviceMu    = math.Log(0.08)
	serviceSigma = (math.Log(0.25) - serviceMu) / 2.3263478740408408
	serviceMean  = math.Exp(serviceMu + serviceSigma*serviceSigma/2)
)

func (w *world) drawService() float64 {
	s := math.Exp(serviceMu + serviceSigma*w.rng.NormFloat64())
	if w.service != nil {
		s *= w.service(w.now)
	}
	if w.hangs != nil && w.rng.Float64() < w.hangs(w.now) {
		return 1e9
	}
	return s
}

func (w *world) speedNow() float64 {
	if w.speed == nil {
		return 1
	}
	return w.speed(w.now, w.inService+w.others)
}

// advance moves the time, and what is in service.
func (w *world) advance(to float64) {
	w.virtual += (to - w.now) * w.speedNow()
	w.now = to
}

func (w *world) second() *second {
	for i := int(w.now); i >= len(w.seconds); {
		w.seconds = append(w.seconds, second{limit: w.limit})
	}
	return &w.seconds[int(w.now)]
}

// run simulates to the end.
func (w *world) run() { w.until(w.length) }

// until simulates up to a time.
func (w *world) until(end float64) {
	for {
		for !w.deadlines.empty() && w.deadlines.front().state == over {
			w.deadlines.pop()
		}
		for !w.pending.empty() && w.pending.front().state != waiting {
			w.pending.pop()
		}
		for len(w.serving) > 0 && w.serving[0].state == over {
			heap.Pop(&w.serving)
		}
		next, what := w.nextTick, 0
		consider := func(t float64, kind int) {
			if t < next {
				next, what = t, kind
			}
		}
		consider(w.nextArrival, 1)
		if len(w.serving) > 0 {
			if v := w.speedNow(); v > 0 {
				consider(w.now+max(0, w.serving[0].finish-w.virtual)/v, 2)
			}
		}
		if !w.deadlines.empty() {
			consider(w.deadlines.front().by, 3)
		}
		if !w.pending.empty() {
			consider(w.pending.front().arrived+pendingTime, 6)
		}
		if len(w.dialEnds) > 0 {
			consider(w.dialEnds[0], 4)
		}
		if len(w.retries) > 0 {
			consider(w.retries[0].at, 5)
		}
		if w.parts.hedge != nil {
			consider(max(w.now, w.parts.hedge.next()), 7)
		}
		if next >= end {
			w.advance(end)
			return
		}
		w.advance(next)
		switch what {
		case 0:
			w.nextTick += tick
			w.decide()
		case 1:
			n := 1
			if w.batch > 1 { // geometric
				n = 1 + int(math.Log(1-w.rng.Float64())/math.Log(1-1/w.batch))
			}
			for range n {
				w.arrive(0)
			}
			w.nextArrival = w.drawArrival()
		case 2:
			w.finish(heap.Pop(&w.serving).(*request), true)
		case 3:
			w.expire(w.deadlines.pop())
		case 4:
			w.dialEnds = w.dialEnds[1:]
			w.dialled()
		case 5:
			tries := w.retries[0].tries
			w.retries = w.retries[1:]
			w.arrive(tries)
		case 6:
			w.expire(w.pending.pop())
		case 7:
			w.parts.hedge.begin(w)
		}
	}
}

func (w *world) decide() {
	w.sample.InUse = w.busy + w.dialling*w.perConn()
	w.sample.Frozen = w.parts.holdsBack(w)
	w.loseEndpoint()
	w.limit = w.controller.decide(w, w.sample)
	w.second().limit = w.limit
	w.closeSurplus()
	w.serve()
}

// perConn returns how many places a connection has now.
func (w *world) perConn() int {
	if w.traffic.limit != nil {
		return w.traffic.limit(w.now)
	}
	return max(1, w.depth)
}

// places returns how many places are open.
func (w *world) places() int { return w.open * w.perConn() }

// conns returns how many connections the limit allows.
func (w *world) conns() int { return (w.limit + w.perConn() - 1) / w.perConn() }

func (w *world) closeSurplus() {
	for w.open > w.conns() && w.busy <= (w.open-1)*w.perConn() {
		w.closeOne()
	}
}

func (w *world) closeOne() {
	if w.depth > 0 {
		w.closePipe(nil)
		return
	}
	w.open--
}

// loseEndpoint closes the connections to the endpoint that is lost now. Some are in use, and close later.
func (w *world) loseEndpoint() {
	was := w.isLost
	w.isLost = w.lost != nil && w.lost(w.now)
	if was || !w.isLost {
		return
	}
	n := w.open / w.endpoints
	idle := min(n, w.open-w.busy)
	w.open -= idle
	w.draining = n - idle
}

func (w *world) arrive(tries int) {
	w.second().arrivals++
	if w.parts.refuses(w) {
		w.second().refused++
		return
	}
	w.need(&request{by: w.now + deadline, tries: tries, arrived: w.now})
}

// need gives r a place, or lets it wait.
func (w *world) need(r *request) {
	s := w.second()
	w.sample.Arrivals++
	if w.busy >= w.places() && w.open+w.dialling >= w.conns() {
		r.waited = true
		s.waits++
		w.sample.Waits++
		if w.waiting >= pendingMost {
			r.state = over
			s.refused++
			w.retry(r)
			return
		}
		w.pending.push(r)
	} else if w.busy >= w.places() && w.waiting >= (w.conns()-w.open)*w.perConn() { // more than dials will serve
		w.pending.push(r)
	}
	if !r.second { // otherwise it ends with the first attempt
		w.deadlines.push(r)
	}
	w.queue.push(r)
	w.waiting++
	w.serve()
}

// serve gives free places to waiting requests, and dials for the others.
func (w *world) serve() {
	for !w.queue.empty() {
		r := w.queue.front()
		if r.state == over {
			w.queue.pop()
			continue
		}
		if w.busy >= min(w.places(), w.conns()*w.perConn()) {
			break
		}
		w.queue.pop()
		w.waiting--
		w.busy++
		w.inService++
		r.state, r.began, r.finish = serving, w.now, w.virtual+w.drawService()
		if w.depth > 0 { // its response comes after those of the requests before it
			r.pipe = w.pipeFor()
			r.pipe.inUse++
			r.finish = max(r.finish, r.pipe.last)
			r.pipe.last = r.finish
		}
		if w.parts.hedge != nil {
			w.parts.hedge.sent(r)
		}
		s := w.second()
		s.wait = append(s.wait, w.now-r.arrived)
		heap.Push(&w.serving, r)
	}
	most := dialsMost
	if w.now < w.paused {
		most = 0 // the next tick tries again
	}
	for w.dialling*w.perConn() < w.waiting && w.open+w.dialling < w.conns() && w.dialling < most {
		w.dialling++
		took := dialTime
		if w.dials != nil {
			took = w.dials(w.now)
		}
		i, _ := slices.BinarySearch(w.dialEnds, w.now+took)
		w.dialEnds = slices.Insert(w.dialEnds, i, w.now+took)
	}
}

func (w *world) dialled() {
	w.dialling--
	if w.refuses != nil && w.refuses(w.now) {
		w.pause = min(max(0.1, 2*w.pause), 5)
		w.paused = w.now + w.pause
		return
	}
	w.pause = 0
	w.open++
	if w.depth > 0 {
		w.pipes = append(w.pipes, &pipe{})
	}
	w.second().opened++
	w.closeSurplus()
	w.serve()
}

// finish ends a request in service. responded says that the SSP has responded.
func (w *world) finish(r *request, responded bool) {
	r.state = over
	w.busy--
	w.inService--
	held := w.now - r.began
	w.sample.Releases++
	w.sample.Held += time.Duration(held * float64(time.Second))
	w.parts.ended(w, held, !responded)
	if p := r.pipe; p != nil {
		p.inUse--
		if !responded { // a request behind it would wait for its response
			w.closePipe(p)
		}
	}
	if w.draining > 0 {
		w.draining--
		w.open--
	}
	t := r.twin
	goesOn := t != nil && t.state != over
	if responded {
		w.sample.Successes++
		w.second().good++
		if goesOn {
			w.cancel(t)
		}
	} else {
		if w.depth == 0 && w.traffic.limit == nil {
			w.open-- // HTTP/1: the connection is of no more use
		}
		if !goesOn {
			w.retry(r)
		}
	}
	w.closeSurplus()
	w.serve()
}

// cancel ends an attempt whose twin has a response. Its connection is of no more use.
func (w *world) cancel(r *request) {
	was := r.state
	r.state = over
	if was == waiting {
		w.waiting--
		return
	}
	w.busy--
	w.inService--
	w.open--
	w.sample.Releases++
	w.sample.Held += time.Duration((w.now - r.began) * float64(time.Second))
}

// expire ends a request at its deadline.
func (w *world) expire(r *request) {
	switch r.state {
	case waiting:
		r.state = over
		w.waiting--
		if !r.second {
			w.second().refused++
			w.retry(r)
		}
	case serving:
		if t := r.twin; t != nil && t.state != over {
			r.twin = nil
			w.cancel(t)
		}
		w.finish(r, false)
	}
}

// retry makes the client send a failed request again.
func (w *world) retry(r *request) {
	if r.tries < w.again {
		w.retries = append(w.retries, retry{w.now + 0.01, r.tries + 1})
	}
}
