package dial

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"adbuffer/internal/machine/lag"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/socket"
)

// connectDelay is how long a connection attempt runs alone before the dial tries the next address in parallel (RFC
// 8305, section 5). If half of timeouts.connect is shorter, the delay is half of timeouts.connect, so that a second
// address can be tried.
const connectDelay = 250 * time.Millisecond

// race runs the TCP connection attempts of one dial, each to a different address. The first open connection wins.
type race struct {
	dialer  *Dialer
	addrs   []exchange.Address
	limited context.Context // ends at timeouts.connect
	stop    func()          // ends limited
	results chan attemptResult
	spans   []lag.Span // the time of each attempt so far
	running int
	lost    []error // see Raced.Lost
}

// attemptResult is the result of a connection attempt.
type attemptResult struct {
	at   int // index in addrs
	conn *net.TCPConn
	err  error
}

// openSocket connects to one of addrs: to the address that accepts first.
func (d *Dialer) openSocket(ctx context.Context, addrs []exchange.Address) (*socket.Conn, Raced, error) {
	var won attemptResult
	var raced Raced
	limited, cancel := d.opts.Lag.WithTimeout(ctx, d.timeouts.connect())
	defer cancel()
	if len(addrs) == 1 {
		won.conn, won.err = d.tcpTo(ctx, limited, addrs[0])
	} else {
		r := &race{dialer: d, addrs: addrs, limited: limited, stop: cancel, results: make(chan attemptResult), lost: make([]error, len(addrs))}
		won = r.run(ctx)
		raced.At = won.at
		if ctx.Err() == nil {
			r.lost[won.at] = nil
			raced.Lost = r.lost
		}
	}
	if won.err != nil {
		return nil, raced, won.err
	}
	setUserTimeout(won.conn, deadPeer)
	sock := socket.New(won.conn)
	return sock, raced, nil
}

// run returns the winning connection, or the last error. When it returns, all attempts have ended,
// and all other connections are closed.
func (r *race) run(ctx context.Context) (won attemptResult) {
	delay := min(r.dialer.delay, r.dialer.timeouts.connect()/2)
	r.start(ctx)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for r.running > 0 {
		select {
		case <-timer.C:
			if left := r.spans[len(r.spans)-1].Left(delay, time.Now()); left > 0 {
				timer.Reset(left)
				continue
			}
		case c := <-r.results:
			r.running--
			switch {
			case won.conn != nil:
				if c.err == nil { // the attempt succeeded after another had won
					_ = c.conn.Close()
				}
				continue
			case c.err == nil:
				won = c
				r.blameSlow(c.at, delay)
				r.stop()
				continue
			}
			won, r.lost[c.at] = c, c.err
		}
		// No attempt is started after the deadline: it would fail without sending a SYN, and would be blamed on its
		// address.
		if won.conn == nil && r.limited.Err() == nil && len(r.spans) < len(r.addrs) {
			r.start(ctx)
			timer.Reset(delay)
		}
	}
	return won
}

func (r *race) start(ctx context.Context) {
	at := len(r.spans)
	r.spans = append(r.spans, r.dialer.opts.Lag.Begin(time.Now()))
	r.running++
	go func() {
		conn, err := r.dialer.tcpTo(ctx, r.limited, r.addrs[at])
		r.results <- attemptResult{at, conn, err}
	}()
}

// blameSlow records an error for the attempts that had run for longer than delay when the attempt won succeeded. The
// pool then prefers other addresses.
func (r *race) blameSlow(won int, delay time.Duration) {
	now := time.Now()
	for i, began := range r.spans {
		if i != won && r.lost[i] == nil && began.Left(delay, now) == 0 {
			r.lost[i] = connectFailed(fmt.Sprintf("%s: no TCP connection within %v, but %s had one", r.addrs[i], delay, r.addrs[won]), os.ErrDeadlineExceeded)
		}
	}
}

// tcpTo connects to addr. limited is ctx with the timeout.
func (d *Dialer) tcpTo(ctx, limited context.Context, addr exchange.Address) (*net.TCPConn, error) {
	from, err := d.sources.next(addr.AddrPort.Addr())
	if err != nil {
		return nil, connectFailed(addr.String(), err)
	}
	conn, err := d.tcp.DialTCP(limited, "tcp", from, addr.AddrPort)
	if err != nil && d.opts.FreeFile(err) {
		conn, err = d.tcp.DialTCP(limited, "tcp", from, addr.AddrPort)
	}
	if err != nil {
		return nil, d.tcpError(ctx, addr, from.Addr(), err)
	}
	return conn, nil
}

// The kernel detects a dead peer within deadPeer. TCP_USER_TIMEOUT detects it while sent bytes are
// not acknowledged. Keep-alive probes, sent after keepAliveIdle without traffic, detect it on an
// idle connection.
const (
	deadPeer      = 30 * time.Second
	keepAliveIdle = 15 * time.Second
	keepAliveStep = 5 * time.Second
	keepAliveLost = int((deadPeer - keepAliveIdle) / keepAliveStep)
)

func newTCPDialer() net.Dialer {
	return net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: keepAliveIdle, Interval: keepAliveStep, Count: keepAliveLost,
		},
	}
}
