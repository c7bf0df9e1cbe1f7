package http1

import (
	"errors"
	"net"
	"time"

	"adbuffer/internal/wire/exchange"
)

// Errors without their own cause are allocated once.
var (
	errClosed      = exchange.Errorf(exchange.ConnLost, exchange.NotSent, "the pipelined connection was closed before the request was sent")
	errClosedToo   = errClosed.AsCollateral()
	errBehindClose = exchange.Errorf(exchange.ConnLost, exchange.NotProcessed, "the SSP closed the pipelined connection behind an earlier response")
	errUnwritten   = &exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.NotProcessed, Unsent: true, Collateral: true,
		Detail: errBehindClose.Detail}
	errBehindLast = &exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.MaybeProcessed, Stale: true,
		Detail: "the SSP closed the pipelined connection after an earlier response, and did not state that it processed no later request"}
	errBehindOverdue = exchange.Errorf(exchange.ConnLost, exchange.NotSent, "an earlier response on the pipelined connection is overdue")
	errUnwrittenFull = exchange.Errorf(exchange.Overloaded, exchange.NotSent,
		"1 MB of requests wait to be written on one pipelined connection: the SSP does not read them; see pool.pipeline_depth")
)

// failUnsent fails the entries whose requests had not been sent when writing ended because of cause. These are the
// newest entries.
func (r *reader) failUnsent(cause error) {
	sent := r.n
	for sent > 0 && r.at(sent-1).start >= r.takenBytes.Load() {
		sent--
	}
	r.failFrom(sent, func(_ int, e *entry) *exchange.Error {
		if !r.now.Before(e.deadline) {
			return exchange.ErrDeadlineNotSent
		}
		return notSent(cause)
	})
}

// closeAnnounced is called when a response is the last response of its connection. Only "Connection: close" states
// that the SSP has processed no later request (RFC 9112, section 9.6). After an HTTP/1.0 response, or a response
// without a length, the SSP may have processed every request that was written.
//
// Unwritten requests also count as not processed: the SSP's close should not use up retries.
func (r *reader) closeAnnounced() {
	r.lastResponse = true
	first := r.setCloseReason(exchange.ClosedByPeer)
	r.mu.Lock()
	r.endWritesLocked()
	r.admitLocked()
	r.mu.Unlock()
	if first {
		r.owner.Changed()
	}
	r.failFrom(1, func(_ int, e *entry) *exchange.Error {
		switch {
		case e.start >= r.takenBytes.Load():
			return errUnwritten
		case r.response.header.close:
			return errBehindClose
		}
		return errBehindLast
	})
}

// failFrom fails all entries except the oldest from entries, in their order. The first of the failures stands for the
// end of the connection; the other failures are collateral.
func (r *reader) failFrom(from int, why func(i int, e *entry) *exchange.Error) {
	stands := false
	var last, collateral *exchange.Error
	for i := from; i < r.n; i++ {
		e := *r.at(i)
		*r.at(i) = entry{}
		if e.ex == nil {
			r.releaseEntry(&e, nil)
			continue
		}
		err := why(i, &e)
		switch {
		case err.Outcome.Row().Result != exchange.Failure:
		case !stands:
			stands = true
		case err == last:
			err = collateral
		default:
			last, collateral = err, err.AsCollateral()
			err = collateral
		}
		r.releaseEntry(&e, err)
	}
	r.n = min(r.n, from)
}

// closeAndFail closes the connection and fails its remaining entries. It first waits for the end of the current
// write, which the close interrupts, to know which bytes were sent.
func (r *reader) closeAndFail(cause error) {
	first := r.setCloseReason(closeReasonFor(cause, r.started))
	r.sock.Close()
	r.mu.Lock()
	r.endWritesLocked()
	for r.writing {
		r.writingEnded.Wait()
	}
	r.admitLocked()
	r.mu.Unlock()
	if first {
		r.owner.Changed()
	}
	r.now = time.Now()
	r.failFrom(0, func(i int, e *entry) *exchange.Error { return r.failure(i, e, cause) })
}

// failure returns the error for the i-th oldest entry when the connection is closed because of
// cause.
func (r *reader) failure(i int, e *entry, cause error) *exchange.Error {
	switch {
	case i == 0 && r.started:
		return exchange.AsError(r.response.asError(cause, true, e.ex.Reused))
	case e.start >= r.takenBytes.Load():
		return notSent(cause)
	default:
		return &exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.MaybeProcessed,
			// A close by adbuffer is not the keep-alive race.
			Stale:  e.ex.Reused && !errors.Is(cause, net.ErrClosed),
			Detail: "the pipelined connection closed before the first byte of the response", Err: cause}
	}
}

// closeReasonFor returns the close reason for cause. started says that a byte of the current
// response had arrived.
func closeReasonFor(cause error, started bool) exchange.CloseReason {
	switch {
	case errors.Is(cause, errUnsolicited):
		return exchange.ClosedUnsolicited
	case !started && isConnError(cause):
		return exchange.ClosedByPeer
	default:
		return exchange.ClosedError
	}
}

func notSent(cause error) *exchange.Error {
	return &exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.NotSent,
		Detail: "the pipelined connection failed before the request was sent", Err: cause}
}

// isOverBudget reports whether err says that a response did not fit into the budget. The reader can still read and
// drop the remaining bytes of such a response.
func isOverBudget(err error) bool {
	var e *exchange.Error
	return errors.As(err, &e) && e.Outcome == exchange.Overloaded
}
