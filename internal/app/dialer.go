package app

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"go.uber.org/zap"

	"adbuffer/internal/config"
	"adbuffer/internal/dial"
	"adbuffer/internal/http1"
	"adbuffer/internal/http2"
	"adbuffer/internal/pool"
	"adbuffer/internal/upstream"
)

// dialer joins dialling to the protocols: the pool knows neither.
type dialer struct {
	dial   *dial.Dialer
	scheme string
	http1  *http1.Options
	http2  http2.Options

	mu    sync.Mutex // guards the fields below
	found []dial.Addr
	addrs []pool.Address
	back  map[pool.Address]dial.Addr
}

func newDialer(c *config.SSP, endpoints dial.Endpoints, log *zap.Logger) (*dialer, error) {
	d, err := dial.New(dial.Options{
		Endpoints: endpoints, Mode: dial.Mode(c.Protocol), // the same words
		ConnectTimeout: c.Timeouts.Connect, TLSTimeout: c.Timeouts.TLSHandshake,
		TLS: dial.TLS{
			ServerName: c.TLS.ServerName, CAFile: c.TLS.CAFile, CertFile: c.TLS.CertFile, KeyFile: c.TLS.KeyFile,
			InsecureSkipVerify: c.TLS.InsecureSkipVerify,
		},
		Warn: func(err error) { log.Warn("connecting to an SSP", zap.String("ssp", c.Name), zap.Error(err)) },
	})
	if err != nil {
		return nil, err
	}
	return &dialer{
		dial: d, scheme: endpoints.Scheme,
		http1: &http1.Options{
			MaxResponseBytes: c.MaxResponseBytes, MaxResponseHeaderBytes: c.MaxResponseHeaderBytes, Linger: c.Pool.Linger,
		},
		http2: http2.Options{
			MaxStreams: c.Pool.MaxStreamsPerConn, MaxResponseBytes: c.MaxResponseBytes, MaxResponseHeaderBytes: c.MaxResponseHeaderBytes,
		},
	}, nil
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
	d.back = make(map[pool.Address]dial.Addr, len(found))
	for i, a := range found {
		d.addrs[i] = pool.Address{Host: d.authority(a), AddrPort: a.AddrPort}
		d.back[d.addrs[i]] = a
	}
	return d.addrs, nil
}

// authority is what Host says: without the port that the scheme stands for.
func (d *dialer) authority(a dial.Addr) string {
	port := a.AddrPort.Port()
	if d.scheme == "http" && port == 80 || d.scheme == "https" && port == 443 {
		if ip, err := netip.ParseAddr(a.Host); err == nil && ip.Is6() {
			return "[" + a.Host + "]"
		}
		return a.Host
	}
	return net.JoinHostPort(a.Host, strconv.Itoa(int(port)))
}

// Dial implements pool.Dialer.
func (d *dialer) Dial(ctx context.Context, addr pool.Address, offerHTTP2 bool, owner upstream.Owner) (pool.Dialed, error) {
	d.mu.Lock()
	at, ok := d.back[addr]
	d.mu.Unlock()
	if !ok { // looked up anew since: the name is gone, but the address is as good as it was
		at = dial.Addr{Host: hostOf(addr.Host), AddrPort: addr.AddrPort}
	}
	r, err := d.dial.Dial(ctx, at, offerHTTP2)
	took := pool.Dialed{TCP: r.TCP, TLS: r.TLS}
	if err != nil {
		return took, err
	}
	switch r.Protocol {
	case upstream.HTTP2:
		c, err := http2.New(r.Conn, owner, d.http2)
		if err != nil {
			r.Conn.Close() //nolint:errcheck // the error of New matters
			return took, err
		}
		took.Conn = c
	case upstream.HTTP1Pipelined:
		took.Conn = http1.New(r.Conn, r.Socket, owner, d.http1) // PIPELINED
	default:
		took.Conn = http1.New(r.Conn, r.Socket, owner, d.http1)
	}
	return took, nil
}

func hostOf(authority string) string {
	if h, _, err := net.SplitHostPort(authority); err == nil {
		return h
	}
	if n := len(authority); n > 1 && authority[0] == '[' {
		return authority[1 : n-1]
	}
	return authority
}
