package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"adbuffer/internal/socket"
)

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

// openSocket connects to addr. Go sets TCP_NODELAY on every TCP connection.
func (d *Dialer) openSocket(ctx context.Context, addr Addr) (*socket.Conn, error) {
	from, err := d.sources.next(addr.AddrPort.Addr())
	if err != nil {
		return nil, connectFailed(addr.String(), err)
	}
	tcp := d.tcp
	tcp.Timeout = d.timeouts.connect()
	conn, err := tcp.DialTCP(ctx, "tcp", from, addr.AddrPort)
	switch {
	case err != nil && errors.Is(err, syscall.EADDRNOTAVAIL) && from.IsValid():
		return nil, connectFailed(fmt.Sprintf("%s: cannot connect from %s: not an address of this machine, or all its ports are in use; see source_addresses", addr, from.Addr()), err)
	case err != nil:
		return nil, d.tcpError(ctx, addr, err)
	}
	setUserTimeout(conn, deadPeer)
	sock := socket.New(conn)
	sock.Count(&d.stats.traffic)
	return sock, nil
}
