package dial

import (
	"context"
	"net"
	"net/netip"
	"time"

	"adbuffer/internal/socket"
)

// A peer that dies without a word is found within deadPeer, whether we wait for
// an acknowledgement of what we sent (TCP_USER_TIMEOUT) or for nothing
// (keep-alive probes, after keepAliveIdle without traffic).
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
	tcp := d.tcp
	tcp.Timeout = d.timeouts.connect()
	conn, err := tcp.DialTCP(ctx, "tcp", netip.AddrPort{}, addr.AddrPort)
	if err != nil {
		return nil, d.tcpError(ctx, addr, err)
	}
	setUserTimeout(conn, deadPeer)
	sock := socket.New(conn)
	sock.Count(&d.stats.traffic)
	return sock, nil
}
