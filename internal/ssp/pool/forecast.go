package pool

import "adbuffer/internal/wire/exchange"

// forecast predicts the pool's next connection from earlier ones. Guarded by Pool.mu.
type forecast struct {
	protocol exchange.Protocol // of the last connection; Unknown before the first one
	places   int               // of the last connection of this protocol; 0 before the first one
}

func (f *forecast) noteProtocol(pr exchange.Protocol) {
	if f.protocol != pr {
		*f = forecast{protocol: pr}
	}
}

func (f *forecast) notePlaces(pr exchange.Protocol, n int) {
	if pr == f.protocol {
		f.places = n
	}
}
