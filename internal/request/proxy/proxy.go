package proxy

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/internal/client/http1"
	"adbuffer/internal/machine/overload"
	"adbuffer/internal/request/route"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/logs"
	"adbuffer/internal/wire/openrtb"
	"adbuffer/internal/wire/tracing"

	"go.uber.org/zap"
)

// Options are the settings of the traffic side; config/reference.yaml explains each of them. Reload
// can change all but MaxHeaderBytes and TLS while requests run.
type Options struct {
	http1.Options // of clients' connections

	MaxBufferedBytesFrom string // names the setting of MaxBufferedBytes, like MaxConnectionsFrom
	MaxInFlight          int
	MaxUploads           int
	TrustedProxies       []netip.Prefix
	HealthPath           string // "" = none
	ErrorDetail          bool
	Via                  string         // the name of this process in Via, which detects loops
	ProxyStatus          bool           // add Proxy-Status to responses
	RequestIDField       string         // of requests and responses; "" = none
	Overload             *overload.Gate // nil refuses nothing

	Deadline DeadlineOptions
	Fairness *ssp.FairnessKey // nil = none
	Access   logs.AccessOptions
	Tracer   *tracing.Tracer // nil = no tracing
}

// Proxy serves requests. Make one with New, run it with Serve, end it with Drain.
type Proxy struct {
	*http1.Server // of clients' connections

	log      *zap.Logger
	requests *logs.RequestLog
	inFlight ssp.InFlight
	process  route.Process
	uploads  slowClients // requests whose body is still arriving: server.max_uploads
	unread   slowClients // responses that clients have not read
	unsents  unsents
	budget   *exchange.Budget
	ready    func() bool // for HealthPath
	panics   atomic.Uint64

	unreadable [openrtb.Reasons]atomic.Uint64 // bodies that conditions could not read

	config    atomic.Pointer[configVersion]
	reloading sync.Mutex   // held by Reload
	streams   atomic.Int64 // handlers of HTTP/2 that run
}

// New returns a Proxy that routes by table. requests receives requests that ended,
// and may be nil. ready decides the response to HealthPath.
func New(opts Options, table *route.Table, logger *zap.Logger, requests *logs.RequestLog, ready func() bool) *Proxy {
	p := &Proxy{log: logger, requests: requests, budget: exchange.NewBudget(opts.MaxBufferedBytes), ready: ready}
	p.config.Store(newConfigVersion(opts, table, nil))
	p.inFlight.SetLimit(opts.MaxInFlight)
	p.budget.SetFrom(opts.MaxBufferedBytesFrom)
	p.uploads = slowClients{budget: p.budget, drop: source.stopUpload, limit: opts.MaxUploads}
	p.unread = slowClients{budget: p.budget, drop: source.dropUnread}
	p.process = route.Process{InFlight: &p.inFlight, Panicked: p.panicked}
	p.Server = http1.New(handler{p}, opts.Options, logger)
	return p
}

// request is one request that is being handled. The objects are reused.
type request struct {
	*configVersion // from acquire to release
	fields         header.RequestFields
	identity       header.Identity
	ssp            ssp.Request
	route          *route.Route // nil while search goes on
	search         route.Search
	method         []byte        // unchanged; nil if the request line could not be read
	rawTarget      []byte        // the same
	target         *route.Target // the client's choice, or nil
	upload         waiting       // for the rest of the body
	body           []byte
	buffer         *[]byte   // body's memory, nil for none
	room           int       // bytes of buffer that are for body; the budget counts them
	scratch        []byte    // for fields of the response
	query          []byte    // scratch for a query without the control parameter
	started        time.Time // when it was read completely; zero before
	traceDecided   bool      // whether it is traced
	http1.Client
	source *http1.Body // the body that is to be read; nil for none, and for a body that client/http2 reads
	block  []byte      // memory of the header, method and path of a stream
}

var requests = sync.Pool{New: func() any { return new(request) }}

func (p *Proxy) acquire(from http1.Client) *request {
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
	r.ssp, r.route, r.target, r.Client, r.configVersion = ssp.Request{}, nil, nil, http1.Client{}, nil
	r.identity.Reset()
	r.search.Reset()
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
	if f == nil && r.route != nil {
		r.Waited, f = r.shed()
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
