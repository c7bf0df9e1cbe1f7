package load

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// sockaddr is the address of the server.
type sockaddr struct {
	family int
	addr   unix.Sockaddr
	text   string
}

// resolve looks addr up once. All connections of a loop use the first address. Each loop needs a
// sockaddr of its own because connecting writes to it.
func resolve(addr string) (*sockaddr, error) {
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, err
	}
	if v4 := tcp.IP.To4(); v4 != nil {
		return &sockaddr{unix.AF_INET, &unix.SockaddrInet4{Port: tcp.Port, Addr: [4]byte(v4)}, addr}, nil
	}
	return &sockaddr{unix.AF_INET6, &unix.SockaddrInet6{Port: tcp.Port, Addr: [16]byte(tcp.IP.To16())}, addr}, nil
}

// redial opens closed keep-alive connections again.
func (l *loop) redial() {
	now := l.now()
	kept := l.dead[:0]
	for _, c := range l.dead {
		if l.dialing >= maxDialing || now < c.retry {
			kept = append(kept, c)
			continue
		}
		l.dial(c, now)
	}
	l.dead = kept
}

// dial starts a connect.
func (l *loop) dial(c *conn, now time.Duration) {
	fd, err := openSocket(l.addr.family)
	if err != nil {
		l.dialFailed(c, err)
		return
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // a hint
	c.fd, c.state, c.opened, c.uses = fd, connecting, now, 0
	l.dialing++
	err = unix.Connect(fd, l.addr.addr)
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		l.dialFailed(c, err)
		return
	}
	if err := l.poller.Add(fd, c.key); err != nil {
		l.dialFailed(c, err)
	}
}

// connected completes a connect.
func (l *loop) connected(c *conn) {
	if code, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || code != 0 {
		if err == nil {
			err = unix.Errno(code)
		}
		l.dialFailed(c, err)
		return
	}
	l.dialing--
	c.state, c.fails = open, 0
	l.counts.TCP++
	switch {
	case len(c.out) > 0:
		l.flush(c)
	case l.plan.Open || !l.running:
		l.release(c)
	default:
		l.refill(c, l.now())
	}
}

func (l *loop) dialFailed(c *conn, err error) {
	err = dialError(l.addr.text, err)
	kind := kindOf(err)
	if kind == Refused {
		l.fatal = err
	}
	c.fails++
	c.retry = l.now() + min(time.Duration(1<<min(c.fails, 7))*10*time.Millisecond, time.Second)
	l.closeConn(c, kind)
}

// closeConn closes c. Its requests fail with an error of this kind.
func (l *loop) closeConn(c *conn, kind string) {
	if c.fd >= 0 {
		if c.state == connecting {
			l.dialing--
		}
		_ = unix.Close(c.fd) // its requests are counted below
	}
	c.fd, c.state, c.stuck = -1, closed, false
	started := c.parser.Started() || len(c.in) > 0
	c.out, c.in = c.out[:0], c.in[:0]
	c.parser.Reset()
	now := l.now()
	for c.flights.count > 0 {
		f := c.flights.pop()
		l.inFlight--
		of := kind
		if started && (kind == Closed || kind == Reset) {
			of = Cut
		}
		l.rec.Failed(int(f.phase), int(f.class), of, now-f.due)
		started = false // later requests have no byte of a response
	}
	if l.plan.Protocol != Close {
		l.dead = append(l.dead, c)
		return
	}
	if l.plan.Open || !l.running {
		l.release(c)
	} else if c.fails == 0 {
		l.refill(c, now)
	} else {
		l.dead = append(l.dead, c) // connected refills it
	}
}

func (l *loop) flush(c *conn) {
	for len(c.out) > 0 && !c.stuck {
		n, err := unix.Write(c.fd, c.out)
		if err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if errors.Is(err, unix.EAGAIN) {
				c.stuck = true
				return
			}
			l.closeConn(c, Reset)
			return
		}
		if n == len(c.out) {
			c.out = c.out[:0]
			return
		}
		c.out = c.out[:copy(c.out, c.out[n:])]
	}
}

func (l *loop) handle(c *conn, e event) {
	if c.state == connecting {
		if !e.Writable && !e.HungUp {
			return
		}
		l.connected(c)
		if c.state != open {
			return
		}
	}
	if e.Writable && c.stuck {
		c.stuck = false
		l.flush(c)
	}
	for e.Readable && c.state == open {
		n, err := unix.Read(c.fd, l.buf)
		switch {
		case err == nil && n > 0:
			l.consume(c, l.buf[:n])
			// After a short read the socket is empty. Only another read shows a close.
			if n < len(l.buf) && !e.HungUp {
				return
			}
		case err == nil:
			l.ended(c)
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return
		default:
			l.closeConn(c, Reset)
		}
	}
}

// ended handles an end of stream.
func (l *loop) ended(c *conn) {
	if c.flights.count > 0 && c.parser.EndsWithConnection() {
		l.received(c, l.now())
	}
	if c.state != open {
		return
	}
	if c.flights.count == 0 {
		l.counts.ClosedIdle++
	}
	l.closeConn(c, Closed)
}

// consume parses responses in b, which follows the bytes that c keeps.
func (l *loop) consume(c *conn, b []byte) {
	if len(c.in) > 0 {
		c.in = append(c.in, b...)
		b = c.in
	}
	now := l.now()
	for len(b) > 0 {
		if c.flights.count == 0 {
			l.rec.Unsolicited(l.plan.phaseAt(now - l.started))
			l.closeConn(c, Closed)
			return
		}
		n, done, err := c.parser.Next(b)
		if err != nil {
			l.closeConn(c, badResponse)
			return
		}
		b = b[n:]
		if !done {
			break
		}
		l.received(c, now)
		if c.state != open {
			return
		}
	}
	if len(b) == 0 {
		c.in = c.in[:0]
	} else {
		c.in = append(c.in[:0], b...)
	}
	if !l.plan.Open && !l.full(c) {
		l.refill(c, now)
	}
}

// received completes the oldest request of c.
func (l *loop) received(c *conn, now time.Duration) {
	f := c.flights.pop()
	l.inFlight--
	a := &c.parser.Response
	if c.uses++; c.uses > 1 {
		l.counts.Reused++
	}
	l.rec.Received(int(f.phase), int(f.class), f.number, a, now-f.due, now-l.started)
	switch {
	case a.Close || l.plan.Protocol == Close:
		l.closeConn(c, Closed)
	case l.plan.Open:
		l.release(c)
	}
}

// expire closes connections whose oldest request or connect exceeds the timeout.
func (l *loop) expire(now time.Duration) {
	for _, c := range l.conns {
		switch {
		case c.state == connecting && now-c.opened > l.plan.Timeout:
			c.fails++
			l.closeConn(c, TimedOut)
		case c.flights.count > 0 && now-c.flights.first().sent > l.plan.Timeout:
			l.closeConn(c, TimedOut)
		}
	}
}

// close closes all sockets and the poller.
func (l *loop) close() {
	for _, c := range l.conns {
		if c.fd >= 0 {
			_ = unix.Close(c.fd)
		}
	}
	_ = l.poller.Close()
}
