// Package proxy is one request under one deadline: check, forward, answer.
package proxy

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"adbuffer/internal/httpheader"
	"adbuffer/internal/route"
	"adbuffer/internal/ssp"
	"adbuffer/internal/upstream"
)

// Options are the settings of the traffic side; see config/adbuffer.yaml for
// what each does. All can change while requests run, by Reload, but those that
// NeedsRestart names.
type Options struct {
	MaxConnections   int
	MaxInFlight      int
	MaxBufferedBytes int64
	ReadTimeout      time.Duration
	WriteTimeout     time.Duration
	IdleTimeout      time.Duration
	MaxHeaderBytes   int // needs a restart: it is the size of the server's buffers
	MaxBodyBytes     int
	ReduceIdleMemory bool
	TrustedProxies   []netip.Prefix
	HealthPath       string // "" = none
	ErrorDetail      bool

	Deadline DeadlineOptions
	Access   AccessOptions
}

// NeedsRestart returns the configuration's names of the settings in which next
// differs from o and which only a restart can change; none if Reload can apply
// all of next.
func (o *Options) NeedsRestart(next *Options) (keys []string) {
	if o.MaxHeaderBytes != next.MaxHeaderBytes {
		keys = append(keys, "server.max_header_bytes")
	}
	return keys
}

// Proxy serves requests. Make one with New, run it with Serve, end it with
// Drain.
type Proxy struct {
	log      *zap.Logger
	server   *fasthttp.Server
	inFlight ssp.InFlight
	process  route.Process
	budget   *upstream.Budget
	ready    func() bool // for HealthPath
	panics   atomic.Uint64

	generation atomic.Pointer[generation]
	reloading  sync.Mutex // held by Reload

	draining atomic.Bool    // every answer says Connection: close
	stopping atomic.Bool    // nothing is parked any more
	woken    sync.WaitGroup // connections that were parked, and are served again
	open     atomic.Int64
	refused  atomic.Int64 // connections that are being refused right now
	clients  clients
}

// New returns a Proxy that routes by table. ready is what HealthPath answers
// by.
func New(opts Options, table *route.Table, log *zap.Logger, ready func() bool) *Proxy {
	p := &Proxy{log: log, budget: upstream.NewBudget(opts.MaxBufferedBytes), ready: ready}
	p.generation.Store(newGeneration(opts, table, nil))
	p.inFlight.SetLimit(opts.MaxInFlight)
	p.process = route.Process{InFlight: &p.inFlight, Panicked: p.panicked}
	p.server = p.newServer(opts.MaxHeaderBytes)
	return p
}

// request is one request being handled; reused.
type request struct {
	*generation // from acquire to release
	fields      httpheader.RequestFields
	identity    httpheader.Identity
	lookup      route.Lookup
	ssp         ssp.Request
	route       *route.Route
	target      *route.Target // the client's choice, nil where it made none
	body        []byte
	query       []byte // scratch for a query that something was cut from
	held        int64  // bytes of the budget that body holds
	started     time.Time
	conn        *clientConn
}

var requests = sync.Pool{New: func() any { return new(request) }}

// maxKeptBytes is the largest body buffer that is kept for the next request.
const maxKeptBytes = 64 << 10

func (p *Proxy) acquire(conn *clientConn) *request {
	r := requests.Get().(*request)
	r.conn, r.generation = conn, p.current()
	r.fields.TimeoutName = r.opts.Deadline.Header
	return r
}

func (p *Proxy) release(r *request) {
	if r.held > 0 {
		p.budget.Release(r.held)
		r.held = 0
	}
	if cap(r.body) > maxKeptBytes {
		r.body = nil
	}
	r.fields.Reset()
	r.lookup, r.ssp, r.route, r.target, r.conn, r.generation = route.Lookup{}, ssp.Request{}, nil, nil, nil, nil
	r.identity = httpheader.Identity{}
	requests.Put(r)
}

// handle is the fasthttp handler.
func (p *Proxy) handle(ctx *fasthttp.RequestCtx) {
	conn := clientOf(ctx)
	r := p.acquire(conn)
	defer p.done(ctx, r)
	if f := p.check(ctx, r); f != nil {
		p.refuse(ctx, r, f)
		return
	}
	if r.opts.HealthPath != "" && string(r.lookup.Path) == r.opts.HealthPath {
		p.answerHealth(ctx)
		return
	}
	if !p.inFlight.Enter() {
		p.refuse(ctx, r, p.overloaded())
		return
	}
	defer p.inFlight.Leave()
	if f := p.prepare(ctx, r); f != nil {
		p.refuse(ctx, r, f)
		return
	}
	res := r.route.Do(&r.ssp, r.target, &p.process)
	p.answer(ctx, r, &res)
}
