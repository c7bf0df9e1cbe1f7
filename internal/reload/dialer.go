package reload

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"adbuffer/internal/config"
	"adbuffer/internal/dial"
	"adbuffer/internal/histogram"
	"adbuffer/internal/http1"
	"adbuffer/internal/http2"
	"adbuffer/internal/pool"
	"adbuffer/internal/upstream"
)

// dialer joins dialling to the protocols: the pool knows neither.
type dialer struct {
	ssp   string
	dial  *dial.Dialer
	conns atomic.Pointer[connOptions] // of the connections that are opened from now on

	endpoints dial.Endpoints
	headWait  *histogram.Histogram // of all its pipelined connections

	mu    sync.Mutex // guards the fields below
	found []dial.Addr
	addrs []pool.Address // found, as the pool knows them
}

func newDialer(c *config.SSP, endpoints dial.Endpoints, log *zap.Logger) (*dialer, error) {
	d, err := dial.New(dial.Options{
		Endpoints: endpoints, Mode: dial.Mode(c.Protocol), // the same words
		ConnectTimeout: c.Timeouts.Connect, TLSTimeout: c.Timeouts.TLSHandshake,
		TLS: dial.TLS{
			ServerName: c.TLS.ServerName, CAFile: c.TLS.CAFile, CertFile: c.TLS.CertFile, KeyFile: c.TLS.KeyFile,
			InsecureSkipVerify: c.TLS.InsecureSkipVerify,
		},
		Sources: c.SourceAddresses,
		Warn:    func(err error) { log.Warn("connecting to an SSP", zap.String("ssp", c.Name), zap.Error(err)) },
	})
	if err != nil {
		return nil, err
	}
	all := &dialer{ssp: c.Name, dial: d, endpoints: endpoints, headWait: newHeadWait()}
	all.set(c)
	return all, nil
}

// connOptions are the settings that a connection is opened with, and keeps.
type connOptions struct {
	http1 *http1.Options
	http2 http2.Options
}

// set changes the settings of connections that are dialled from now on.
func (d *dialer) set(c *config.SSP) {
	d.dial.SetTimeouts(c.Timeouts.Connect, c.Timeouts.TLSHandshake)
	d.conns.Store(&connOptions{
		http1: &http1.Options{
			MaxResponseBytes: c.MaxResponseBytes, MaxResponseHeaderBytes: c.MaxResponseHeaderBytes, MaxResponseFields: c.MaxResponseFields,
			Linger: c.Pool.Linger, Depth: c.Pool.PipelineDepth, HeadWait: d.headWait,
		},
		http2: http2.Options{
			MaxStreams: c.Pool.MaxStreamsPerConn, MaxResponseBytes: c.MaxResponseBytes, MaxResponseHeaderBytes: c.MaxResponseHeaderBytes,
			MaxResponseFields: c.MaxResponseFields,
		},
	})
}

// Addresses implements pool.Dialer.
func (d *dialer) Addresses(ctx context.Context) ([]pool.Address, error) {
	found, err := d.dial.Addresses(ctx)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(found) == len(d.found) && &found[0] == &d.found[0] { // as long as nothing changes, it is the same slice
		return d.addrs, nil
	}
	d.found, d.addrs = found, make([]pool.Address, len(found))
	for i, a := range found {
		e := dial.Endpoint{Host: a.Host, Port: a.AddrPort.Port()}
		d.addrs[i] = pool.Address{Host: d.endpoints.Authority(a), AddrPort: a.AddrPort, Endpoint: e.Name()}
	}
	return d.addrs, nil
}

// Dial implements pool.Dialer.
func (d *dialer) Dial(ctx context.Context, addr pool.Address, others []pool.Address, offerHTTP2 bool, owner upstream.Owner) (pool.Dialed, error) {
	host := hostOf(addr.Host)
	addrs := []dial.Addr{{Host: host, AddrPort: addr.AddrPort}}
	for _, o := range others {
		addrs = append(addrs, dial.Addr{Host: host, AddrPort: o.AddrPort})
	}
	r, err := d.dial.Dial(ctx, offerHTTP2, addrs...)
	took := pool.Dialed{TCP: r.TCP, TLS: r.TLS, At: r.At, Lost: r.Lost}
	if err != nil {
		return took, err
	}
	o := d.conns.Load()
	switch r.Protocol {
	case upstream.HTTP2:
		c, err := http2.New(r.Conn, owner, o.http2)
		if err != nil {
			r.Conn.Close() //nolint:errcheck // the error of New matters
			return took, err
		}
		took.Conn = c
	case upstream.HTTP1Pipelined:
		took.Conn = http1.NewPipelined(r.Conn, r.Socket, owner, o.http1)
	default:
		took.Conn = http1.New(r.Conn, r.Socket, owner, o.http1)
	}
	return took, nil
}

// hostOf takes the port and IPv6's brackets off an authority.
func hostOf(authority string) string {
	if h, _, err := net.SplitHostPort(authority); err == nil {
		return h
	}
	if n := len(authority); n > 1 && authority[0] == '[' {
		return authority[1 : n-1]
	}
	return authority
}
