package reload

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/ssp/dial"
	"adbuffer/internal/ssp/http1"
	"adbuffer/internal/ssp/http2"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/exchange"
)

// dialer implements pool.Dialer. It dials a connection, and starts the protocol that TLS negotiated,
// since the pool knows neither dialling nor protocols.
type dialer struct {
	dial  *dial.Dialer
	conns atomic.Pointer[connOptions] // the options of connections that are opened from now on

	headWait *metrics.Histogram // observations of all pipelined connections
}

// dialOptions returns the settings for dials to the SSP.
func dialOptions(c *config.SSP) dial.Options {
	return dial.Options{
		Endpoints: c.Parsed, Mode: c.Protocol,
		ConnectTimeout: c.Timeouts.Connect, TLSTimeout: c.Timeouts.TLSHandshake,
		TLS: dial.TLS{
			ServerName: c.TLS.ServerName, CAFile: c.TLS.CAFile, CertFile: c.TLS.CertFile, KeyFile: c.TLS.KeyFile,
			InsecureSkipVerify: c.TLS.InsecureSkipVerify, Policy: c.TLS.Policy(),
		},
		Sources: c.SourceAddresses,
	}
}

func newDialer(c *config.SSP, shared *Options) (*dialer, error) {
	o, log := dialOptions(c), shared.Peers
	o.Lag, o.CPU, o.Party, o.FreeFile = shared.Lag, shared.CPU, cpushare.PartyNamed(c.Name), shared.FreeFile
	o.Warn = func(err error) { log.Warn("connecting to an SSP", zap.String("ssp", c.Name), zap.Error(err)) }
	o.Changed = func(a dial.AddressChange) {
		log.Info("the addresses of an SSP have changed", zap.String("ssp", c.Name), zap.String("host", a.Host), zap.Stringers("came", a.Came), zap.Stringers("went", a.Went), zap.Stringers("in_use", a.InUse))
	}
	d, err := dial.New(o)
	if err != nil {
		return nil, err
	}
	const ms = time.Millisecond
	all := &dialer{dial: d, headWait: metrics.Durations(ms/10, 5*ms, 50*ms, 500*ms)} // from negligible waits up to a usual deadline
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
			MaxResponseBytes: c.MaxResponseBytes, MaxResponseHeaderBytes: c.MaxResponseHeaderBytes,
			Linger: c.Pool.Linger, Depth: c.Pool.PipelineDepth, HeadWait: d.headWait,
		},
		http2: http2.Options{
			MaxStreams: c.Pool.MaxStreamsPerConn, MaxResponseBytes: c.MaxResponseBytes, MaxResponseHeaderBytes: c.MaxResponseHeaderBytes,
		},
	})
}

// Addresses implements pool.Dialer.
func (d *dialer) Addresses(ctx context.Context) ([]exchange.Address, error) {
	return d.dial.Addresses(ctx)
}

// Dial implements pool.Dialer.
func (d *dialer) Dial(ctx context.Context, addr exchange.Address, others []exchange.Address, offerHTTP2 bool, owner exchange.Owner) (pool.Dialed, error) {
	r, err := d.dial.Dial(ctx, offerHTTP2, append([]exchange.Address{addr}, others...)...)
	took := pool.Dialed{TCP: r.TCP, TLS: r.TLS, At: r.At, Lost: r.Lost}
	if err != nil {
		return took, err
	}
	o := d.conns.Load()
	switch r.Protocol {
	case exchange.HTTP2:
		took.Conn = http2.New(r.Conn, r.Socket, owner, o.http2)
	case exchange.HTTP1Pipelined:
		took.Conn = http1.NewPipelined(r.Conn, r.Socket, owner, o.http1)
	default:
		took.Conn = http1.New(r.Conn, r.Socket, owner, o.http1)
	}
	return took, nil
}
