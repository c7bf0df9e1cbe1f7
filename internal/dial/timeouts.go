package dial

import (
	"sync/atomic"
	"time"
)

// timeouts can change while dials are under way; each dial reads them once.
type timeouts struct{ connectNs, handshakeNs atomic.Int64 }

func (t *timeouts) set(connect, handshake time.Duration) {
	t.connectNs.Store(int64(connect))
	t.handshakeNs.Store(int64(handshake))
}

func (t *timeouts) connect() time.Duration { return time.Duration(t.connectNs.Load()) }

func (t *timeouts) handshake() time.Duration { return time.Duration(t.handshakeNs.Load()) }

// SetTimeouts changes ConnectTimeout and TLSTimeout for dials and waits that begin later. The rules
// of New apply to the values.
func (d *Dialer) SetTimeouts(connect, handshake time.Duration) {
	d.timeouts.set(connect, handshake)
}
