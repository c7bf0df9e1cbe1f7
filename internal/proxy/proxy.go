package proxy

import (
	"crypto/tls"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/internal/http1server"
	"adbuffer/internal/httpheader"
	"adbuffer/internal/logs"
	"adbuffer/internal/route"
	"adbuffer/internal/ssp"
	"adbuffer/internal/tracing"
	"adbuffer/internal/upstream"

	"go.uber.org/zap"
)

// Options are the settings of the traffic side; config/adbuffer.yaml explains each of them. Reload
// can change all but MaxHeaderBytes and TLS while requests run.
type Options struct {
	MaxConnections int
	// MaxConnectionsFrom and MaxBufferedBytesFrom name the settings of these limits for error texts. If
	// the machine allows less than a setting, they say why. "" is the setting alone.
	MaxConnectionsFrom, MaxBufferedBytesFrom string

	MaxInFlight      int
	MaxUploads       int
	MaxStreams       int // of an HTTP/2 connection
	H2C              bool
	MaxBufferedBytes int64
	ReadTimeout      time.Duration
	WriteTimeout     time.Duration
	IdleTimeout      time.Duration
	MaxHeaderBytes   int // needs a restart: it is the size of the server's buffers
	MaxBodyBytes     int
	ReduceIdleMemory bool
	AbortOnClose     bool // a client that closes its connection, or only its sending half, cancels its request
	TrustedProxies   []netip.Prefix
	HealthPath       string // "" = none
	ErrorDetail      bool
	Via              string      // the name of this process in Via, which detects loops
	ProxyStatus      bool        // add Proxy-Status to responses
	ServerTiming     bool        // add Server-Timing to responses
	RequestIDField   string      // of requests and responses; "" = none
	TLS              *tls.Config // towards clients, with NextProtos; nil = cleartext; needs a restart

	Deadline DeadlineOptions
	Access   logs.AccessOptions
	Tracer   *tracing.Tracer // nil = no tracing
}

// ofConnections returns the options of clients' connections.
func (o *Options) ofConnections() http1server.Options {
	return http1server.Options{
		MaxConnections: o.MaxConnections, MaxConnectionsFrom: o.MaxConnectionsFrom, MaxHeaderBytes: o.MaxHeaderBytes, MaxBodyBytes: o.MaxBodyBytes, MaxStreams: o.MaxStreams,
		MaxUnread: int(max(o.MaxBufferedBytes/16, 1<<20)), H2C: o.H2C, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, IdleTimeout: o.IdleTimeout,
		ReduceIdleMemory: o.ReduceIdleMemory, AbortOnClose: o.AbortOnClose, TLS: o.TLS,
	}
}

// Proxy serves requests. Make one with New, run it with Serve, end it with
// Drain.
type Proxy struct {
	log      *zap.Logger
	requests *logs.RequestLog
	server   *http1server.Server
	inFlight ssp.InFlight
	process  route.Process
	uploads  slowClients // requests whose body is still arriving: server.max_uploads
	unread   slowClients // responses that clients have not read
	budget   *upstream.Budget
	ready    func() bool // for HealthPath
	panics   atomic.Uint64

	config    atomic.Pointer[configVersion]
	reloading sync.Mutex   // held by Reload
	streams   atomic.Int64 // handlers of HTTP/2 that run
}

// New returns a Proxy that routes by table. requests receives requests that ended,
// and may be nil. ready decides the response to HealthPath.
func New(opts Options, table *route.Table, logger *zap.Logger, requests *logs.RequestLog, ready func() bool) *Proxy {
	p := &Proxy{log: logger, requests: requests, budget: upstream.NewBudget(opts.MaxBufferedBytes), ready: ready}
	p.config.Store(newConfigVersion(opts, table, nil))
	p.inFlight.SetLimit(opts.MaxInFlight)
	p.budget.SetFrom(opts.MaxBufferedBytesFrom)
	p.uploads = slowClients{budget: p.budget, drop: source.stopUpload, limit: opts.MaxUploads}
	p.unread = slowClients{budget: p.budget, drop: source.dropUnread}
	p.process = route.Process{InFlight: &p.inFlight, Panicked: p.panicked}
	p.server = http1server.New(handler{p}, p.current().connections, logger)
	return p
}

// request is one request that is being handled. The objects are reused.
type request struct {
	*configVersion // from acquire to release
	fields         httpheader.RequestFields
	identity       httpheader.Identity
	ssp            ssp.Request
	route          *route.Route
	method         []byte        // unchanged; nil if the request line could not be read
	rawTarget      []byte        // the same
	target         *route.Target // the client's choice, or nil
	upload         waiting       // for the rest of the body
	body           []byte
	buffer         *[]byte   // body's memory, nil for none
	room           int       // bytes of buffer that are for body; the budget counts them
	budgetFrom     string    // the source of the deadline
	scratch        []byte    // for fields of the response
	query          []byte    // scratch for a query without the control parameter
	started        time.Time // when it was read completely; zero before
	traceDecided   bool      // whether it is traced
	http1server.Client
	source *http1server.Body // the body that is to be read; nil for none, and for a body that http2server reads
	block  []byte            // memory of the header, method and path of a stream
}

var requests = sync.Pool{New: func() any { return new(request) }}

func (p *Proxy) acquire(from http1server.Client) *request {
	r := requests.Get().(*request)
	r.Client, r.configVersion = from, p.current()
	r.fields.TimeoutName, r.fields.IDName = r.opts.Deadline.Header, r.opts.RequestIDField
	return r
}

func (p *Proxy) release(r *request) {
	p.freeBody(r)
	r.source, r.started, r.traceDecided = nil, time.Time{}, false
	r.fields.Reset()
	r.method, r.rawTarget = nil, nil
	r.ssp, r.route, r.target, r.Client, r.configVersion = ssp.Request{}, nil, nil, http1server.Client{}, nil
	r.identity = httpheader.Identity{}
	requests.Put(r)
}

// admit reports whether a request is to be forwarded once its body has arrived. Otherwise it has
// made the response. The message head has been checked: f is its error, or nil.
func (p *Proxy) admit(w *response, r *request, f *refusal) bool {
	if f == nil && r.opts.HealthPath != "" && string(r.fields.Path) == r.opts.HealthPath {
		r.skipBody()
		p.writeHealth(w)
		return false
	}
	if f == nil {
		f = r.findRoute()
	}
	if f != nil {
		p.refuse(w, r, f)
	}
	return f == nil
}

// forward forwards a request that has arrived completely, and makes the response.
func (p *Proxy) forward(w *response, r *request) {
	f := p.prepare(r)
	r.beginTrace(r.started)
	if f != nil {
		p.refuse(w, r, f)
		return
	}
	// The whole request has arrived. A request whose body never arrives is not in flight.
	if !p.inFlight.Acquire() {
		p.refuse(w, r, p.overloaded())
		return
	}
	defer p.inFlight.Release()
	p.uploads.end(&r.upload, true)
	res := r.route.Do(&r.ssp, r.target, &p.process)
	p.writeResponse(w, r, &res)
}
