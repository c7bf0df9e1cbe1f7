package proxy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"
)

func (p *Proxy) newServer(maxHeaderBytes int) *fasthttp.Server {
	s := &fasthttp.Server{
		Handler:         p.handle,
		Concurrency:     math.MaxInt32, // Accept enforces max_connections, with a response
		ReadBufferSize:  feignedRoom + maxHeaderBytes,
		WriteBufferSize: writeBuffer,
		// Goroutines that served connections which are parked now end soon.
		MaxIdleWorkerDuration: time.Second,
		// Timeouts are not set here: see deadlines.go.

		// The server adds no field to responses.
		NoDefaultServerHeader:         true,
		NoDefaultDate:                 true,
		NoDefaultContentType:          true,
		DisableHeaderNamesNormalizing: true,
		DisablePreParseMultipartForm:  true,

		LazyRequestTime:       true,
		SecureErrorLogMessage: true,
		Logger:                quiet{p.log},
	}
	s.NextProto(protoHTTP2, p.serveHTTP2)
	return s
}

// writeBuffer holds a whole response of the usual size, so that one write sends it.
const writeBuffer = 4096

// quiet logs fasthttp's messages about clients' connections at level debug. Counters count the
// important ones.
type quiet struct{ log *zap.Logger }

// Printf is called by fasthttp's server.
func (q quiet) Printf(format string, args ...any) {
	if line := q.log.Check(zap.DebugLevel, "fasthttp says of a client's connection"); line != nil {
		line.Write(zap.String("text", fmt.Sprintf(format, args...)))
	}
}

// Serve accepts connections from l until Drain. It returns nil after Drain, or the error
// of l. A connection with the methods of proxied begins with a PROXY header, which its own
// goroutine reads.
func (p *Proxy) Serve(l net.Listener) error {
	p.listeners.add(l)
	err := p.server.Serve(&listener{Listener: l, proxy: p})
	if errors.Is(err, net.ErrClosed) || p.draining.Load() {
		return nil
	}
	return err
}

// BeginDrain adds Connection: close to each response from now on, so that clients connect
// elsewhere. Connections are still accepted. Over HTTP/2 a GOAWAY follows the response.
func (p *Proxy) BeginDrain() { p.draining.Store(true) }

// Drain waits until each request in progress has its response, or ctx ends, and closes all
// connections. It returns how many requests it cut. The caller has closed its listeners; Drain
// closes the ones that Serve still uses.
//
// A client that has just connected has a second to send a request. Then Drain closes idle
// connections. Over HTTP/1.1, only the responses since BeginDrain have announced that. A request
// that has arrived before the close gets its response.
func (p *Proxy) Drain(ctx context.Context) (cut int) {
	p.BeginDrain()
	p.listeners.close()
	defer p.watch.close()
	p.awaitFirstRequests(ctx)
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for {
		p.clients.closeIdle()
		if p.clients.none() && p.streams.Load() == 0 {
			return 0
		}
		select {
		case <-ctx.Done():
			cut = p.InProgress()
			p.clients.cutAll()
			return cut
		case <-tick.C:
		}
	}
}

const drainEvery = 10 * time.Millisecond

// InFlight returns how many requests and fan-out legs are in flight.
func (p *Proxy) InFlight() int { return p.inFlight.Now() }

// InProgress returns two counts: requests and fan-out legs in flight, and requests whose body is
// still arriving. For a moment a request counts in both.
func (p *Proxy) InProgress() int {
	uploads, _, _ := p.uploads.now() // first, since uploads become requests in flight
	return uploads + p.inFlight.Now()
}
