package http1

import (
	"errors"
	"net"
	"time"

	"adbuffer/internal/upstream"
)

// Errors that carry nothing of their own, made once.
var (
	errClosed = &upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.NotSent,
		Detail: "the pipelined connection was closed before the request was sent"}
	errBehindClose = &upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.NotProcessed,
		Detail: "the SSP closed the pipelined connection behind an earlier answer"}
	errBehindLast = &upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.MaybeProcessed, Stale: true,
		Detail: "the SSP ended the pipelined connection with an earlier answer, and did not say that it processed nothing behind it"}
	errUnwrittenFull = &upstream.Error{Outcome: upstream.Overloaded, Progress: upstream.NotSent,
		Detail: "1 MB of requests wait to be written on one pipelined connection: the SSP does not read them; see pool.pipeline_depth"}
)

// dropUnsent ends the entries whose requests were not sent when a write failed.
// They are the youngest.
func (r *reader) failUnsent(cause error) {
	sent := r.n
	for sent > 0 && r.at(sent-1).start >= r.takenBytes.Load() {
		sent--
	}
	r.failFrom(sent, func(_ int, e *entry) error {
		if !r.now.Before(e.deadline) {
			return upstream.ErrDeadlineNotSent
		}
		return notSent(cause)
	})
}

// announced is called when an answer is the last of its connection. Only
// `Connection: close` says that nothing behind it is processed (RFC 9112, section
// 9.6). After a response of HTTP/1.0, or one without a length, the SSP may have
// processed what was written.
//
// Requests that still waited to be written count as not processed, too: that
// the SSP closes is nothing that should use up retries.
func (r *reader) closeAnnounced() {
	r.lastResponse = true
	first := r.setCloseReason(upstream.ClosedByPeer)
	r.mu.Lock()
	r.endWritesLocked()
	r.admitLocked()
	r.mu.Unlock()
	if first {
		r.owner.Changed()
	}
	r.failFrom(1, func(_ int, e *entry) error {
		if r.response.header.close || e.start >= r.takenBytes.Load() {
			return errBehindClose
		}
		return errBehindLast
	})
}

// dropFrom ends all entries but the from oldest, in their order.
func (r *reader) failFrom(from int, why func(i int, e *entry) error) {
	for i := from; i < r.n; i++ {
		e := *r.at(i)
		*r.at(i) = entry{}
		var err error
		if e.ex != nil {
			err = why(i, &e)
		}
		r.releaseEntry(&e, err)
	}
	r.n = min(r.n, from)
}

// end closes the connection and fails what is left on it. It waits for a write
// that is under way, which the close ends, to know what was sent.
func (r *reader) closeAndFail(cause error) {
	first := r.setCloseReason(closeReasonFor(cause, r.started))
	r.sock.Close() //nolint:errcheck // nothing is left to be done about it
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
	r.failFrom(0, func(i int, e *entry) error { return r.failure(i, e, cause) })
}

// failure is what the i-th oldest entry fails with when the connection ends.
func (r *reader) failure(i int, e *entry, cause error) error {
	switch {
	case i == 0 && r.started:
		return r.response.asError(cause, true, e.ex.Reused)
	case e.start >= r.takenBytes.Load():
		return notSent(cause)
	default:
		return &upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.MaybeProcessed,
			// Where we closed, it was no keep-alive race.
			Stale:  e.ex.Reused && !errors.Is(cause, net.ErrClosed),
			Detail: "the pipelined connection ended before the first byte of the answer", Err: cause}
	}
}

// endReason is why a connection ends with cause, if it had not ended before.
func closeReasonFor(cause error, started bool) upstream.CloseReason {
	switch {
	case errors.Is(cause, errUnsolicited):
		return upstream.ClosedUnsolicited
	case !started && isConnError(cause):
		return upstream.ClosedByPeer
	default:
		return upstream.ClosedError
	}
}

func notSent(cause error) error {
	return &upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.NotSent,
		Detail: "the pipelined connection failed before the request was sent", Err: cause}
}

// isOverBudget reports whether a response was read as far as it fitted into the
// budget. The rest can still be read, and dropped.
func isOverBudget(err error) bool {
	var e *upstream.Error
	return errors.As(err, &e) && e.Outcome == upstream.Overloaded
}
