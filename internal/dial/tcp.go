package dial

import (
	"net"
	"time"
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
