// Package load sends requests at a server and keeps the times.
//
// An open loop sends a request when it is due, not when the last response came, as the
// users of a service do. Times are computed before anything is sent, and latency counts
// from them.
//
// Cleartext HTTP/1 runs on event loops, one a thread, which cost a few microseconds a
// request: the generator must cost less than what it measures. TLS and HTTP/2 run on
// goroutines. Both follow the same plan and count in the same way.
package load

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
)

// Protocol is how requests use connections.
type Protocol string

// The protocols.
const (
	KeepAlive Protocol = "http1"           // one request at a time on a connection that stays
	Close     Protocol = "http1-close"     // a connection for every request
	Pipelined Protocol = "http1-pipelined" // Depth requests at a time on a connection
	HTTP2     Protocol = "http2"           // over TLS, Depth streams at a time on a connection
)

// Plan is a whole run.
type Plan struct {
	Addr string // host:port to connect to
	Host string // of the requests
	// Encrypted is TLS, which HTTP2 needs. Authority is in PEM; without it the machine's authorities
	// are trusted. Insecure accepts any certificate.
	Encrypted, Insecure bool
	Authority           []byte
	tls                 *tls.Config // made by check; nil is cleartext
	Protocol            Protocol
	Depth               int // Pipelined, HTTP2

	// Open sends when a request is due, whatever is outstanding, and counts latency from then.
	// Otherwise each connection sends when it has room.
	Open    bool
	Poisson bool // open: random arrivals

	Connections int
	Threads     int // event loops; connections and rate are split among them
	Timeout     time.Duration
	Phases      []Phase // of a closed loop only the durations count
	// Requests ends a closed loop after so many, within the phases; 0 does not.
	Requests int

	Templates []Template
	// Statuses that count as answered; empty is 200 to 299.
	Statuses []int
	// Echo wants each response's X-Echo-Cb to be its request's number: a response
	// of another request is an error.
	Echo bool
	// EchoBody wants each response's body to begin with its request's number.
	EchoBody bool
	Seed     uint64
	// Tick is the interval of the timeline; 0 is a second.
	Tick time.Duration
}

// The kinds of errors, but those named after a status.
const (
	Refused       = "refused"
	Reset         = "reset"          // by the peer, before or in the response
	Closed        = "closed"         // by the peer, before the response
	Cut           = "cut"            // by the peer, in the response
	TimedOut      = "timeout"        // no whole response in time
	noConnection  = "no connection"  // none was free in time
	noConnect     = "connect failed" // other than refused
	noPort        = "no local port"  // all are in TIME_WAIT
	badResponse   = "bad response"   // not HTTP
	wrongResponse = "wrong response" // of another request
	unsolicited   = "unsolicited"    // bytes that no request asked for
	dropped       = "dropped"        // more requests waited than the generator keeps
)

// refusedError ends a run whose target refuses connections.
type refusedError struct {
	Addr string
	Err  error
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("%s refuses connections (%v): start the server, or correct target.url", e.Addr, e.Err)
}

func (e *refusedError) Unwrap() error { return e.Err }

// check fills defaults in and refuses what cannot run.
func (p *Plan) check() error {
	if p.Threads == 0 {
		p.Threads = 1
	}
	if p.Timeout == 0 {
		p.Timeout = 5 * time.Second
	}
	if p.Depth == 0 || p.Protocol == KeepAlive || p.Protocol == Close {
		p.Depth = 1
	}
	if p.Tick == 0 {
		p.Tick = time.Second
	}
	if err := p.makeTLS(); err != nil {
		return err
	}
	switch {
	case p.Connections < p.Threads:
		return fmt.Errorf("%d connections for %d threads: each needs one", p.Connections, p.Threads)
	case len(p.Phases) == 0:
		return errors.New("a run needs a phase")
	case len(p.Templates) == 0:
		return errors.New("a run needs a request")
	case p.Protocol == HTTP2 && p.tls == nil:
		return errors.New("http2 needs an https target")
	case p.Protocol == Pipelined && p.tls != nil:
		return errors.New("http1-pipelined needs an http target")
	}
	switch p.Protocol {
	case KeepAlive, Close, Pipelined, HTTP2:
		return nil
	}
	return fmt.Errorf("protocol %q is none of http1, http1-close, http1-pipelined, http2", p.Protocol)
}

// makeTLS makes the configuration of TLS.
func (p *Plan) makeTLS() error {
	if !p.Encrypted {
		return nil
	}
	host, _, err := net.SplitHostPort(p.Addr)
	if err != nil {
		return err
	}
	p.tls = &tls.Config{ServerName: host, InsecureSkipVerify: p.Insecure, NextProtos: []string{"http/1.1"}}
	if p.Protocol == HTTP2 {
		p.tls.NextProtos = []string{"h2"}
	}
	if len(p.Authority) > 0 {
		p.tls.RootCAs = x509.NewCertPool()
		if !p.tls.RootCAs.AppendCertsFromPEM(p.Authority) {
			return errors.New("target.ca_file: it holds no certificate in PEM")
		}
	}
	return nil
}

func (p *Plan) expects(status int) bool {
	return len(p.Statuses) == 0 && status/100 == 2 || slices.Contains(p.Statuses, status)
}

// isResponse says whether a, which has an expected status, is the response to the
// request with number n.
func (p *Plan) isResponse(a *Response, n uint64) bool {
	return (!p.Echo || isNumber(a.Echo, n)) && (!p.EchoBody || isNumber(a.Start[:], n))
}

func (p *Plan) length() time.Duration {
	var sum time.Duration
	for _, phase := range p.Phases {
		sum += phase.Duration
	}
	return sum
}

// phaseAt returns the phase in force at t, the last one at the end.
func (p *Plan) phaseAt(t time.Duration) int {
	for i, phase := range p.Phases {
		if t < phase.Duration {
			return i
		}
		t -= phase.Duration
	}
	return len(p.Phases) - 1
}
