package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/internal/client/http2"
	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/handshake"
	"adbuffer/internal/wire/http2codec"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"
)

// Handler makes the responses to the requests of a Server's clients. All methods but Handle are
// called with locks held, and must neither wait nor call the Server.
type Handler interface {
	// Handle makes the response to the current request of c over HTTP/1, on c's goroutine. The
	// response is valid until Request.Release.
	Handle(c *Conn) (Request, *Response)
	// Open takes a request over HTTP/2, as http2.Owner's Open does.
	Open(c *Conn, s *http2.Stream, b *http2codec.RequestBlock, last bool) (http2.Request, *http2.Response)
	// Hold reports that unfinished TLS handshakes hold n bytes more, or less if n is negative.
	Hold(n int)
	// Unsent reports that the frames which wait until the client of c reads take n bytes more, or less if
	// n is negative. Their sum becomes 0 before c ends.
	Unsent(c *Conn, n int)
	// Refused reports a connection, or a request of a client at peer, that was not read completely. It
	// returns the last response of the connection; nil for a stream that is reset.
	Refused(peer netip.Addr, f *Refusal) *Response
}

// Request is a request over HTTP/1 that the Handler handles. The connection's goroutine calls it.
type Request interface {
	// Await is called before each Read of the body that waits.
	Await()
	// Unread is called before each Write of the response that waits. It must not block.
	Unread()
	// Release is called once, when the response has been written or will not be.
	Release()
}

// Options are the limits of clients' connections. Reload can change all but MaxHeaderBytes, TLS and CPU.
type Options struct {
	MaxConnections int
	// MaxConnectionsFrom names the setting of MaxConnections for error texts. If the machine allows less
	// than the setting, it says why. "" is the setting alone.
	MaxConnectionsFrom string
	MaxHeaderBytes     int // it is the size of the buffers
	MaxBodyBytes       int
	MaxStreams         int   // of an HTTP/2 connection
	MaxBufferedBytes   int64 // of bodies; an HTTP/2 connection may hold a part of it
	H2C                bool
	ReadTimeout        time.Duration
	WriteTimeout       time.Duration
	IdleTimeout        time.Duration
	AbortOnClose       bool        // a client that closes its connection, or only its sending half, cancels its request
	TLS                *tls.Config // with NextProtos; nil = cleartext
	// CPU bounds the CPU of TLS handshakes; nil = no bound.
	CPU *cpushare.Share
}

// Server accepts clients' connections, and serves them until Drain. Make one with New.
type Server struct {
	handler Handler
	log     *zap.Logger
	current atomic.Pointer[Options]
	http    *fasthttp.Server
	tls     *tls.Config // Options.TLS
	buffers sync.Pool   // of *[]byte; see getBuffer

	versions handshake.VersionCounts // of TLS handshakes that succeeded
	failures handshake.Failures      // TLS handshakes that failed
	memory   handshakeMemory         // of TLS handshakes that run now
	cpu      *cpushare.Share         // Options.CPU

	http2Errors atomic.Uint64

	draining    atomic.Bool
	open        atomic.Int64
	accepted    atomic.Uint64 // connections since start, without refused ones
	reuse       reuse
	refused     atomic.Int64  // connections that are being refused now
	idleDropped atomic.Uint64 // idle connections that were closed to make room
	// connectionsRefused counts the connections that were refused at max_connections.
	connectionsRefused atomic.Uint64
	clients            clients
	watch              watch
	listeners          listeners
}

// New returns a Server whose requests h handles.
func New(h Handler, o Options, log *zap.Logger) *Server {
	s := &Server{handler: h, log: log, tls: o.TLS, cpu: o.CPU, reuse: newReuse()}
	s.memory.hold = func(n int) { h.Hold(n) }
	s.current.Store(&o)
	s.clients.idle.Ring = s.clients.expire
	s.http = &fasthttp.Server{
		Handler:         s.handle,
		Concurrency:     math.MaxInt32, // Accept enforces max_connections, with a response
		ReadBufferSize:  constantRoom + o.MaxHeaderBytes,
		WriteBufferSize: writeBuffer,
		// Goroutines whose connections have been parked end after this time.
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
		Logger:                quiet{log},
	}
	s.http.NextProto(protoHTTP2, s.serveHTTP2)
	return s
}

// options returns the options for a connection or request that begins now.
func (s *Server) options() *Options { return s.current.Load() }

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

// Reload makes o current. A limit on connections applies to the next connection, a timeout when a
// connection next waits. idle_timeout applies when a connection next becomes idle; over HTTP/2 it
// applies to the next connection.
func (s *Server) Reload(o Options) {
	old := s.current.Load()
	o.MaxHeaderBytes, o.TLS, o.CPU = old.MaxHeaderBytes, old.TLS, old.CPU
	s.current.Store(&o)
}

// Serve accepts connections from l until Drain. It returns nil after Drain, or the error
// of l. A connection with the methods of proxied begins with a PROXY header, which its own
// goroutine reads.
func (s *Server) Serve(l net.Listener) error {
	s.listeners.add(l)
	err := s.http.Serve(&listener{Listener: l, server: s})
	if errors.Is(err, net.ErrClosed) || s.draining.Load() {
		return nil
	}
	return err
}

// BeginDrain begins a drain: the Handler closes each connection with its next response, so that clients
// connect elsewhere, and closed connections linger. Connections are still accepted. Over HTTP/2 a GOAWAY
// follows the response.
func (s *Server) BeginDrain() { s.draining.Store(true) }

// Draining reports whether a drain has begun.
func (s *Server) Draining() bool { return s.draining.Load() }

// Drain closes the listeners, and each connection when it is idle. It returns true once no connection is open, and
// none reports that no request over HTTP/2 is running. If ctx ends first, it returns false, and the caller must call
// Cut.
//
// A client that has just connected has a second to send a request. A request that has arrived before
// the close of its connection gets its response.
func (s *Server) Drain(ctx context.Context, none func() bool) bool {
	s.BeginDrain()
	s.listeners.close()
	s.awaitFirstRequests(ctx)
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for {
		s.clients.closeIdle()
		if s.clients.none() && none() {
			s.watch.close()
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// Cut closes all connections.
func (s *Server) Cut() {
	s.clients.cutAll()
	s.watch.close()
}

const drainEvery = 10 * time.Millisecond

// Counts are the numbers of a Server's connections.
type Counts struct {
	Serving    int // connections that hold buffers of fasthttp's server, plus the listeners
	Unfinished int // connections that wait for the rest of a handshake or head
	Waiting    int // unfinished connections that wait for their clients, and not for adbuffer
}

// Open returns the number of open connections.
func (s *Server) Open() int { return int(s.open.Load()) }

// Counts counts connections.
func (s *Server) Counts() Counts {
	n := Counts{Serving: int(s.http.GetOpenConnectionsCount())}
	n.Unfinished, n.Waiting = s.clients.countUnfinished()
	return n
}
