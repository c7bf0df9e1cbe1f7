package http1

import (
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// reuse counts the requests of each client connection, when the connection ends. Its numbers show whether clients open
// a connection for each request; it keeps the address of one such client.
type reuse struct {
	requests prometheus.Histogram // of connections with a request

	mu     sync.Mutex // guards the fields below
	single uint64     // connections that ended after one request
	peer   netip.Addr // the client of the last of these connections
}

func newReuse() reuse {
	return reuse{requests: prometheus.NewHistogram(prometheus.HistogramOpts{Buckets: []float64{1, 10, 100}})}
}

// ended counts a connection that has ended. Before the first request, another goroutine may still set its Peer.
func (r *reuse) ended(c *Conn) {
	requests := c.life.requests.Load()
	if requests == 0 {
		return
	}
	r.requests.Observe(float64(requests))
	if requests == 1 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.single, r.peer = r.single+1, c.Client.Peer
	}
}

// singles returns the number of connections that ended after one request, and the client of the last of these connections.
func (r *reuse) singles() (uint64, netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.single, r.peer
}
