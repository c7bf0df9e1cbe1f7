package proxy

import (
	"bytes"
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
		Concurrency:     math.MaxInt32, // max_connections is enforced in Accept, with an answer
		ReadBufferSize:  feignedRoom + maxHeaderBytes,
		WriteBufferSize: writeBuffer,
		// No timeouts here: clientConn sets them, where it must wait.

		// What crosses is what the SSP and the client said, nothing of ours.
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

// writeBuffer holds a whole answer of the usual size, so that it leaves in one
// write.
const writeBuffer = 4096

// quiet takes what the servers would log about clients' connections. It is not
// our concern at any level but debug: what matters of it is counted.
type quiet struct{ log *zap.Logger }

// Printf is called by fasthttp's server.
func (q quiet) Printf(format string, args ...any) {
	if line := q.log.Check(zap.DebugLevel, "fasthttp says of a client's connection"); line != nil {
		line.Write(zap.String("text", fmt.Sprintf(format, args...)))
	}
}

// Write is called by the server of HTTP/2.
func (q quiet) Write(text []byte) (int, error) {
	if line := q.log.Check(zap.DebugLevel, "net/http says of a client's connection"); line != nil {
		line.Write(zap.ByteString("text", bytes.TrimSpace(text)))
	}
	return len(text), nil
}

// Serve accepts connections from l until Drain. It returns nil after Drain, or
// why l failed. A connection with the methods of proxied starts with a PROXY
// header, which is read on the connection's own goroutine.
func (p *Proxy) Serve(l net.Listener) error {
	p.listeners.add(l)
	err := p.server.Serve(&listener{Listener: l, proxy: p})
	if errors.Is(err, net.ErrClosed) || p.draining.Load() {
		return nil
	}
	return err
}

// BeginDrain makes every answer from now on say Connection: close, so that
// clients move on, while connections are still accepted. Over HTTP/2 the answer
// comes with a GOAWAY.
func (p *Proxy) BeginDrain() { p.draining.Store(true) }

// Drain waits until every request under way is answered, or ctx ends, and closes
// all connections. It returns how many requests it cut then. Who calls it has
// closed the listeners, so that Serve has returned; others are closed here.
//
// A client that has just connected has a second to ask. One that was idle loses
// its connection, and HTTP/1.1 has no way to tell it beforehand, other than the
// answers since BeginDrain. A request that has come by then is answered.
func (p *Proxy) Drain(ctx context.Context) (cut int) {
	p.BeginDrain()
	p.listeners.close()
	p.hearOut(ctx)
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

// InProgress returns how many requests and fan-out legs are in flight, and of how
// many requests the body is still arriving. Between the two a request counts as both.
func (p *Proxy) InProgress() int {
	uploads, _, _ := p.uploads.now() // first, since uploads become requests in flight
	return uploads + p.inFlight.Now()
}
