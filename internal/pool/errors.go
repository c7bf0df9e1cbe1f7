package pool

import (
	"errors"
	"fmt"
	"time"

	"adbuffer/internal/upstream"
)

var (
	errDraining  = &upstream.Error{Outcome: upstream.Draining, Progress: upstream.NotSent, RetryAfter: time.Second, Detail: "adbuffer is stopping, or the SSP was removed from its configuration"}
	errCancelled = &upstream.Error{Outcome: upstream.Cancelled, Progress: upstream.NotSent}
	errNoAddress = &upstream.Error{Outcome: upstream.ConnectFailed, Progress: upstream.NotSent, Detail: "the look-up found no address"}
	// errNotNow ends a dial that found every address paused just before its start. It fails no
	// request.
	errNotNow = &upstream.Error{Outcome: upstream.ConnectFailed, Progress: upstream.NotSent, Detail: "every address backs off after failures; see pool.dial_backoff"}
)

func errClosedAtOnce(a upstream.Address) error {
	return &upstream.Error{
		Outcome: upstream.ConnectFailed, Progress: upstream.NotSent,
		Detail: a.String() + ": the SSP closed the new connection at once",
	}
}

// errNoDial fails a request that waited for as long as a dial may take.
func errNoDial(limit time.Duration) error {
	return &upstream.Error{
		Outcome: upstream.ConnectFailed, Progress: upstream.NotSent,
		Detail: fmt.Sprintf("no connection was ready within %v; see timeouts.connect and timeouts.tls_handshake", limit),
	}
}

func errPendingTimeout(limit time.Duration) error {
	return &upstream.Error{
		Outcome: upstream.PendingTimeout, Progress: upstream.NotSent,
		Detail: fmt.Sprintf("no place was free within %v; see pool.max_conns and pool.pending_timeout", limit),
	}
}

// queueFull describes the limits that a refused request met. The request builds the error text
// outside the lock.
type queueFull struct {
	load                                load
	conns, connsLimit, pending, maximum int

	http2 bool
	cause error // why the pool opens no connection; nil if nothing prevents it
}

func (f *queueFull) error() error {
	setting := "pool.max_conns"
	if f.http2 {
		setting = "pool.max_http2_conns, pool.max_streams_per_conn"
	}
	return &upstream.Error{
		Outcome: upstream.PendingFull, Progress: upstream.NotSent, Err: f.cause,
		Detail: fmt.Sprintf("%d of %d places in use on %d of %d connections, %d of %d requests waiting in the queue; see %s and pool.max_pending",
			f.load.inUse, f.load.possible, f.conns, f.connsLimit, f.pending, f.maximum, setting),
	}
}

// refusesHTTP2 reports whether a dial failed because it offered HTTP/2.
func refusesHTTP2(err error) bool {
	var e *upstream.Error
	return errors.As(err, &e) && (e.RefusesHTTP2 || e.Demote)
}
