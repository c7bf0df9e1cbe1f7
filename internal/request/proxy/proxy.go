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
	"adbuffer/internal/wire/sample"
	"adbuffer/internal/wire/tracing"

	"go.uber.org/zap"
)

// Options are the settings of the traffic side; config/reference.yaml explains each of them. Reload
// can change all but MaxHeaderBytes and TLS while requests run.
type Options struct {
	http1.Options // options of clients' connections

	MaxBufferedBytesFrom string // names the setting of MaxBufferedBytes, like MaxConnectionsFrom
	MaxInFlight          int
	MaxUploads           int
	TrustedProxies       []netip.Prefix
	HealthPath           string // "" = no health path
	ErrorDetail          bool
	Via                  string         // the name of this process in Via, which detects loops
	ProxyStatus          bool           // add Proxy-Status to responses
	RequestIDField       string         // the field of requests and responses; "" = requests have no id
	Overload             *overload.Gate // nil refuses nothing

	Deadline DeadlineOptions
	Fairness *ssp.FairnessKey // nil = no fairness
	Access   logs.AccessOptions
	Sample   sample.Limits
	Tracer   *tracing.Tracer // nil = no tracing
}

// Proxy serves requests. Create a Proxy with New, run it with Serve, stop it with Drain.
type Proxy struct {
	*http1.Server // serves clients' connections

	log      *zap.Logger
	requests *logs.RequestLog
	inFlight ssp.InFlight
	process  route.Process
	uploads  slowClients // requests whose body is still arriving: server.max_uploads
	unread   slowClients // responses that wait until their clients read them
	unsents  unsents
	unrouted unrouted
	budget   *exchange.Budget
	ready    func() bool // the response to HealthPath
	panics   atomic.Uint64

	unreadable [openrtb.Reasons]atomic.Uint64 // bodies that conditions could not read, or edits could not change, by reason

	config    atomic.Pointer[configVersion]
	reloading sync.Mutex   // held by Reload
	streams   atomic.Int64 // HTTP/2 requests that are being served
}

// New returns a Proxy that routes by table. requests receives a record of each request that has ended; it
// may be nil. ready determines the response to HealthPath.
func New(opts Options, table *route.Table, logger *zap.Logger, requests *logs.RequestLog, ready func() bool) *Proxy {
	p := &Proxy{log: logger, requests: requests, budget: exchange.NewBudget(opts.MaxBufferedBytes), ready: ready}
	p.config.Store(p.newConfigVersion(opts, table, nil))
	p.inFlight.SetLimit(opts.MaxInFlight)
	p.budget.SetFrom(opts.MaxBufferedBytesFrom)
	p.uploads = slowClients{budget: p.budget, drop: source.stopUpload, limit: opts.MaxUploads}
	p.unread = slowClients{budget: p.budget, drop: source.dropUnread}
	p.process = route.Process{InFlight: &p.inFlight, Panicked: p.panicked}
	p.Server = http1.New(handler{p}, opts.Options, logger)
	return p
}

// request is a request that is being handled. The objects are reused.
type request struct {
	*configVersion // the version with which the request began
	fields         header.RequestFields
	identity       header.Identity
	ssp            ssp.Request
	route          *route.Route // nil until the route is found
	search         route.Search
	method         []byte        // as the client sent it; nil if the request line could not be read
	rawTarget      []byte        // as the client sent it; nil if the request line could not be read
	target         *route.Target // the SSP that the client chose, or nil
	upload         slowClient    // used while the body is arriving
	body           []byte
	buffer         *[]byte   // memory of body, or nil
	room           int       // how many bytes of buffer are reserved in the budget for body
	scratch        []byte    // memory for fields of the response
	query          []byte    // memory for a query without the parameter that chose an SSP
	started        time.Time // when the whole request had been read; zero before that
	traceDecided   bool      // whether it has been decided if the request is traced
	ignoredTmax    ignoredTmax
	http1.Client
	source *http1.Body // the body to read; nil if there is no body, and for a body that client/http2 reads
	block  []byte      // memory of the header, method and path of an HTTP/2 request
}

var requests = sync.Pool{New: func() any { return new(request) }}

func (p *Proxy) acquireRequest(from http1.Client) *request {
	r := requests.Get().(*request)
	r.Client, r.configVersion = from, p.current()
	r.fields.TimeoutName, r.fields.IDName = r.opts.Deadline.Header, r.opts.RequestIDField
	return r
}

func (p *Proxy) releaseRequest(r *request) {
	p.freeBody(r)
	r.source, r.started, r.traceDecided, r.ignoredTmax = nil, time.Time{}, false, 0
	r.fields.Reset()
	r.method, r.rawTarget = nil, nil
	r.ssp, r.route, r.target, r.Client, r.configVersion = ssp.Request{}, nil, nil, http1.Client{}, nil
	r.identity.Reset()
	r.search.Reset()
	requests.Put(r)
}

// admit reports whether a request may be forwarded once its body has arrived. If not, admit has made the
// response. f is the result of checking the message head.
func (p *Proxy) admit(w *response, r *request, f *refusal) bool {
	if f != nil && f.Outcome == exchange.MethodNotAllowed && r.preflight(w) {
		return false
	}
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
	// Only now does the request count as in flight: a request whose body never arrives must not.
	if !p.inFlight.Acquire() {
		p.refuse(w, r, p.overloaded())
		return
	}
	defer p.inFlight.Release()
	p.uploads.unregister(&r.upload, true)
	res := r.route.Do(&r.ssp, r.target, &p.process)
	p.writeResponse(w, r, &res)
}
