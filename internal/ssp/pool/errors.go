package pool

import (
	"errors"
	"time"

	"adbuffer/internal/wire/exchange"
)

var (
	errDraining  = &exchange.Error{Outcome: exchange.Draining, Progress: exchange.NotSent, RetryAfter: time.Second, Detail: "adbuffer is stopping, or the SSP was removed from its configuration"}
	errNoKey     = errors.New("the key of a request that must wait is not known yet") // Acquire handles it
	errCancelled = &exchange.Error{Outcome: exchange.Cancelled, Progress: exchange.NotSent}
	errNoAddress = exchange.Errorf(exchange.ConnectFailed, exchange.NotSent, "the look-up found no address")
	// errNotNow ends a dial that found every address paused just before its start. It fails no
	// request.
	errNotNow = exchange.Errorf(exchange.ConnectFailed, exchange.NotSent, "every address backs off after failures; see pool.dial_backoff")
)

// isLocal reports whether a dial failed because of adbuffer's machine. No address is to blame.
func isLocal(err error) bool {
	return err != nil && exchange.AsError(err).Outcome == exchange.LocalError
}

// queueFull describes the limits that a refused request met. The request builds the error text
// outside the lock.
type queueFull struct {
	load                                load
	isolated, isolatedLimit             int // connections in use by isolated requests, for one that was refused
	conns, connsLimit, pending, maximum int

	settings string // of the number of places
	fair     bool   // the request left the longest fair queue
	cause    error  // why the pool opens no connection; nil if nothing prevents it
}

func (f *queueFull) error() error {
	if f.isolatedLimit > 0 {
		return exchange.Errorf(exchange.PendingFull, exchange.NotSent,
			"%d of %d connections in use by requests that share none, %d of %d such requests waiting in the queue; see %s and pool.max_pending",
			f.isolated, f.isolatedLimit, f.pending, f.maximum, isolatedSettings)
	}
	why, fairness := "", ""
	if f.fair {
		why, fairness = ", and no other key had more requests there", ", server.fairness.key"
	}
	e := exchange.Errorf(exchange.PendingFull, exchange.NotSent,
		"%d of %d places in use on %d of %d connections, %d of %d requests waiting in the queue%s; see %s%s and pool.max_pending",
		f.load.inUse, f.load.possible, f.conns, f.connsLimit, f.pending, f.maximum, why, f.settings, fairness)
	e.Err = f.cause
	return e
}

// isolatedSettings names the setting that limits the number of connections for isolated requests.
const isolatedSettings = "pool.max_conns (a quarter of it is for requests that share no connection)"
