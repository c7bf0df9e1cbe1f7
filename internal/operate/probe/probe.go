// Package probe finds out what an operator must know about an SSP before it gets requests: its protocols, addresses,
// response times, limits on connections, and form of no-bids.
package probe

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/logs"
)

// maxAddresses bounds the addresses that are dialled.
const maxAddresses = 8

// pipelined is how many requests are sent at once to see whether the SSP pipelines.
const pipelined = 3

// ErrURL is the error of Run for a URL that it cannot ask.
var ErrURL = errors.New("the URL must begin with http:// or https://, and name a host and no user")

// Options say what to ask.
type Options struct {
	URL  string // http or https; its query may hold secrets, and only the YAML has it
	Body []byte // of a POST with JSON; nil = GET
	// Idle is how long idle connections stay open to see when the SSP closes them; 0 = not tried.
	Idle       time.Duration
	Pipelining bool          // whether to send several requests at once on a connection of HTTP/1.1
	Conns      int           // connections open at once, at least 1
	Requests   int           // requests in all, at least 1
	Timeout    time.Duration // of a dial, of a handshake, and of a request
	// Authorities of the SSP's certificate; nil = the system's. Insecure accepts any certificate.
	Authorities *x509.CertPool
	Insecure    bool

	dial func(ctx context.Context, network, address string) (net.Conn, error) // for tests; nil = the system's
}

// Report is what the SSP showed.
type Report struct {
	URL          string         `json:"-"`
	Addresses    []Address      `json:"addresses"`
	TLSVersions  []string       `json:"tls_versions,omitempty"` // those of 1.2 and 1.3 that the SSP supports; empty for http
	ALPN         string         `json:"alpn,omitempty"`         // the SSP's choice between h2 and http/1.1
	HTTP1        *ProtocolFacts `json:"http1,omitempty"`        // nil = the SSP does not support HTTP/1.1
	HTTP2        *HTTP2Facts    `json:"http2,omitempty"`        // for an http URL, HTTP/2 in cleartext (h2c)
	Pipelines    *bool          `json:"pipelines,omitempty"`    // nil = not tried
	GzipResponse bool           `json:"gzip_response"`
	GzipRequest  *bool          `json:"gzip_request,omitempty"`  // a compressed body got the same status; nil = not tried
	ZstdResponse *bool          `json:"zstd_response,omitempty"` // nil = not tried
	ZstdRequest  *bool          `json:"zstd_request,omitempty"`
	NoBids       []NoBid        `json:"no_bids"`  // the forms of no-bids that occurred, each once
	Fills        int            `json:"fills"`    // 2xx responses other than no-bids
	Errors       []string       `json:"errors"`   // the errors that occurred, each text once
	Requests     int            `json:"requests"` // number of requests sent
}

// Address is one address of the SSP's host.
type Address struct {
	IP        netip.Addr    `json:"ip"`
	Connect   time.Duration `json:"connect_ns"`
	Handshake time.Duration `json:"handshake_ns,omitempty"` // of TLS
	Error     string        `json:"error,omitempty"`
}

// ProtocolFacts describes the connections over one protocol.
type ProtocolFacts struct {
	First  time.Duration `json:"first_ns"`  // time of the first response on a connection
	Median time.Duration `json:"median_ns"` // median of all responses of the series
	Served int           `json:"served"`    // how many requests of the series the connection served
	Closed bool          `json:"closed"`    // the SSP closed the connection after them
	Failed bool          `json:"failed"`    // the next request failed, but not because of a close
	// IdleLimit is the idle time after which the SSP closed a connection. IdleOpen is how long a connection was idle
	// and stayed open. Both are 0 if the probe did not try, or could not find out.
	IdleLimit time.Duration `json:"idle_limit_ns,omitempty"`
	IdleOpen  time.Duration `json:"idle_open_ns,omitempty"`
	// Announced is the timeout in the field Keep-Alive; 0 = the SSP announced no timeout.
	Announced time.Duration `json:"announced_idle_ns,omitempty"`
}

// HTTP2Facts describes connections over HTTP/2.
type HTTP2Facts struct {
	ProtocolFacts
	Streams uint32 `json:"max_concurrent_streams"` // 0 = the SSP names no limit
}

// NoBid is a form of response without a bid.
type NoBid string

// The forms.
const (
	NoContent NoBid = "204"
	EmptyBody NoBid = "a 2xx without a body"
	OpenRTB   NoBid = "an OpenRTB document without a bid"
	VAST      NoBid = "a VAST document without an ad"
)

// prober is one run. Only its budget and report are shared by goroutines.
type prober struct {
	Options
	target *url.URL
	port   string
	budget *budget

	mu     sync.Mutex // guards report
	report Report
}

// Run probes the SSP. It never has more connections open, and never sends more requests, than the options
// say. It returns an error if no request got a response. All other errors are in the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return nil, ErrURL
	}
	if o.dial == nil {
		o.dial = (&net.Dialer{Timeout: o.Timeout}).DialContext
	}
	p := &prober{Options: o, target: u, port: u.Port(), budget: newBudget(o.Conns, o.Requests)}
	if p.port == "" {
		p.port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	p.report = Report{URL: o.URL, NoBids: []NoBid{}, Errors: []string{}}
	address, err := p.addresses(ctx)
	if err != nil {
		return nil, err
	}
	p.versions(ctx, address)
	p.http1(ctx, address)
	p.http2(ctx, address)
	p.idle(ctx, address)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.report.Requests = o.Requests - p.budget.remaining()
	if p.report.HTTP1 == nil && p.report.HTTP2 == nil {
		return nil, fmt.Errorf("%s responds to no request: %s", u.Host, strings.Join(p.report.Errors, "; "))
	}
	return &p.report, nil
}

// addresses dials each address of the host, and returns the first address that accepts a connection.
func (p *prober) addresses(ctx context.Context) (works string, err error) {
	limited, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(limited, "ip", p.target.Hostname())
	if err != nil {
		return "", err
	}
	if len(ips) > maxAddresses {
		p.failed("addresses", fmt.Errorf("the host has %d addresses; only the first %d are tried", len(ips), maxAddresses))
		ips = ips[:maxAddresses]
	}
	for _, ip := range ips {
		a := Address{IP: ip.Unmap()}
		c, err := p.open(ctx, net.JoinHostPort(a.IP.String(), p.port), nil)
		if err != nil {
			a.Error = lineOf(err)
		} else {
			a.Connect, a.Handshake = c.connect, c.handshake
			p.report.ALPN = c.protocol
			c.Close()
			if works == "" {
				works = net.JoinHostPort(a.IP.String(), p.port)
			}
		}
		p.report.Addresses = append(p.report.Addresses, a)
	}
	if works == "" {
		return "", fmt.Errorf("no address of %s works: %s", p.target.Host, p.report.Addresses[0].Error)
	}
	return works, nil
}

// versions tries the TLS versions that adbuffer knows.
func (p *prober) versions(ctx context.Context, address string) {
	if p.target.Scheme != "https" {
		return
	}
	for _, v := range []struct {
		name    string
		version uint16
	}{{"1.2", tls.VersionTLS12}, {"1.3", tls.VersionTLS13}} {
		c, err := p.open(ctx, address, func(t *tls.Config) { t.MinVersion, t.MaxVersion = v.version, v.version })
		if err != nil {
			continue // the report lists the versions that succeed
		}
		c.Close()
		p.report.TLSVersions = append(p.report.TLSVersions, v.name)
	}
}

// http1 probes HTTP/1.1: a series of requests on one connection, then compressed requests, then pipelined requests.
func (p *prober) http1(ctx context.Context, address string) {
	c, err := p.openHTTP1(ctx, address)
	if err != nil {
		p.failed("HTTP/1.1", err)
		return
	}
	facts, first := p.series("HTTP/1.1", func() (*response, error) { return c.exchange(p.Body, "") })
	c.Close() // before the next connection opens: the budget may allow only one
	if first == nil {
		return
	}
	facts.Announced = first.keepAlive
	p.report.HTTP1 = &facts
	p.codings(ctx, address, first.status)
	p.pipelining(ctx, address)
}

// series repeats a request on one connection, but uses only half of the remaining requests. first is the first
// response, or nil if no response came.
func (p *prober) series(what string, exchange func() (*response, error)) (facts ProtocolFacts, first *response) {
	var times []time.Duration
	for limit := p.budget.remaining() / 2; !facts.Closed && (p.budget.remaining() > limit || first == nil); {
		r, err := exchange()
		if err != nil {
			facts.Closed = isClose(err)
			facts.Failed = !facts.Closed
			if first == nil || facts.Failed {
				p.failed(what, err)
			}
			break
		}
		first = cmp.Or(first, r)
		p.note(r)
		times = append(times, r.took)
		facts.Served++
		facts.Closed = r.closes
	}
	if first != nil {
		facts.First, facts.Median = first.took, median(times)
	}
	return facts, first
}

// codings sends a request in each coding, on a connection of its own, and compares its status with that of a request
// without a coding.
func (p *prober) codings(ctx context.Context, address string, plain int) {
	for _, coding := range []ssp.Coding{ssp.CodingGzip, ssp.CodingZstd} {
		if p.Body == nil || p.budget.remaining() <= 1 { // the last request is reserved for HTTP/2
			return
		}
		c, err := p.openHTTP1(ctx, address)
		if err != nil {
			return
		}
		r, err := c.exchange(coding.Compress(p.Body), string(coding))
		c.Close()
		accepted := err == nil && r.status == plain
		if coding == ssp.CodingGzip {
			p.report.GzipRequest = &accepted
		} else {
			responds := err == nil && r.coding == string(coding)
			p.report.ZstdRequest, p.report.ZstdResponse = &accepted, &responds
		}
	}
}

// pipelining sends pipelined requests on a connection of their own.
func (p *prober) pipelining(ctx context.Context, address string) {
	if p.Pipelining && p.budget.remaining() > pipelined { // the last request is reserved for HTTP/2
		if c, err := p.openHTTP1(ctx, address); err == nil {
			responses, err := c.pipeline(p.Body, pipelined)
			all := len(responses) == pipelined
			p.report.Pipelines = &all
			if err != nil {
				p.failed("pipelining", err)
			}
			c.Close()
		}
	}
}

func (p *prober) http2(ctx context.Context, address string) {
	c, err := p.openHTTP2(ctx, address)
	if err != nil {
		if p.report.ALPN == "h2" { // otherwise the SSP does not support HTTP/2
			p.failed("HTTP/2", err)
		}
		return
	}
	defer c.Close()
	facts, first := p.series("HTTP/2", func() (*response, error) { return c.exchange(p.Body) })
	if first == nil {
		return
	}
	p.report.HTTP2 = &HTTP2Facts{ProtocolFacts: facts, Streams: c.streams}
}

// idle leaves a connection of each protocol idle, until the SSP closes it.
func (p *prober) idle(ctx context.Context, address string) {
	if p.Idle <= 0 {
		return
	}
	var all sync.WaitGroup
	if facts := p.report.HTTP1; facts != nil {
		all.Go(func() {
			c, err := p.openHTTP1(ctx, address)
			if err != nil {
				p.failed("idle over HTTP/1.1", err)
				return
			}
			defer c.Close()
			r, err := c.exchange(p.Body, "")
			p.leaveIdle("idle over HTTP/1.1", facts, r, err, c.idleFor)
		})
	}
	if facts := p.report.HTTP2; facts != nil {
		all.Go(func() {
			c, err := p.openHTTP2(ctx, address)
			if err != nil {
				p.failed("idle over HTTP/2", err)
				return
			}
			defer c.Close()
			r, err := c.exchange(p.Body)
			p.leaveIdle("idle over HTTP/2", &facts.ProtocolFacts, r, err, c.idleFor)
		})
	}
	all.Wait()
}

// leaveIdle leaves a connection idle after its first exchange, whose result is r or err.
func (p *prober) leaveIdle(what string, facts *ProtocolFacts, r *response, err error, idleFor func(time.Duration) time.Duration) {
	if err == nil && r.closes {
		err = errCloses
	}
	if err != nil {
		p.failed(what, err)
		return
	}
	facts.IdleLimit = idleFor(p.Idle)
	if facts.IdleLimit == 0 {
		facts.IdleOpen = p.Idle
	}
}

// note adds what a response shows to the report.
func (p *prober) note(r *response) {
	p.report.GzipResponse = p.report.GzipResponse || r.coding == "gzip"
	switch form := r.noBid(); {
	case r.status >= 300:
		p.failed("a response", fmt.Errorf("status %d", r.status))
	case form == "":
		p.report.Fills++
	case !slices.Contains(p.report.NoBids, form):
		p.report.NoBids = append(p.report.NoBids, form)
	}
}

// failed adds an error to the report, each text once.
func (p *prober) failed(what string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if text := what + ": " + lineOf(err); !slices.Contains(p.report.Errors, text) {
		p.report.Errors = append(p.report.Errors, text)
	}
}

// lineOf returns the text of an error as one short line that a terminal only prints. The SSP may have
// written parts of it.
func lineOf(err error) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, logs.Cut(err.Error()))
}

func median(times []time.Duration) time.Duration {
	times = slices.Sorted(slices.Values(times))
	return times[len(times)/2]
}
