package http1

import (
	"bufio"
	"errors"
	"io"
	"os"
	"runtime"
	"time"

	"adbuffer/internal/socket"
	"adbuffer/internal/upstream"
)

// reader is the half of a Pipelined connection that belongs to its goroutine.
// Nobody else touches its fields.
type reader struct {
	*Pipelined

	br        *bufio.Reader // on source
	mayRead   bool          // source may ask the socket; else it says errNothing
	full      bool          // the last Read had no room for more than it returned
	lateReads int           // reads since the deadline passed; see maxLooks

	queue         []entry // a ring of opts.Depth: n entries from head on, the oldest first
	head, n       int
	response      responseReader // of the oldest entry
	started       bool           // a byte of that answer has come
	firstReported bool           // prove was called
	lastResponse  bool           // the peer has announced the end: the oldest entry is the last

	now         time.Time // when the last Read returned, or the last sweep was
	takenAtRead int64     // taken, as of then: what has come cannot answer what was not taken
	answeredTo  int64     // requests up to here have been answered
	oldestSince time.Time // when the last answer was whole: since then the oldest entry is the oldest
}

// run reads until the connection is of no more use, and ends what is left.
func (r *reader) run() { r.closeAndFail(r.serve()) }

// Why serve returned, where it was neither the connection nor an answer that
// failed.
var (
	errNothingBuffered = errors.New("nothing buffered")
	errNotReusable     = errors.New("the connection cannot be used after the last answer")
	errNoWaiters       = errors.New("nobody waits for an answer any more")
	errUnsolicited     = errors.New("the SSP sent an answer that no request asked for")
)

func (r *reader) serve() error {
	for {
		if r.br.Buffered() == 0 {
			if err := r.fill(); err != nil {
				return err
			}
		}
		e := r.oldest()
		if e == nil || e.start >= min(r.takenAtRead, r.takenBytes.Load()) && !r.started {
			return errUnsolicited
		}
		if !r.started {
			r.start(e)
		}
		err := r.response.read(r.br, e.ex)
		if !r.lastResponse && r.response.announcesClose() {
			r.closeAnnounced()
		}
		switch {
		case err == nil:
			err = r.completeOldest()
		case errors.Is(err, errNothingBuffered) && r.lastResponse && e.ex == nil:
			err = errNoWaiters
		case errors.Is(err, errNothingBuffered):
			err = r.fill()
		case e.ex != nil && isOverBudget(err):
			r.abandon(e, err)
			r.wakeWhenOverdue()
			err = nil
		}
		if err != nil {
			return err
		}
	}
}

// source is what the bufio.Reader reads from. Only fill lets it ask the socket,
// so that parsing never blocks, and ends in errNothing instead.
type source reader

func (s *source) Read(b []byte) (int, error) {
	if !s.mayRead {
		return 0, errNothingBuffered
	}
	n, err := s.net.Read(b)
	s.full = n == len(b)
	return n, err
}

// fill waits for more bytes, and looks around when it is woken for that.
func (r *reader) fill() error {
	r.answeredBytes.Store(r.answeredTo)
	for {
		if !r.sock.ReadAhead() {
			// Callers that were completed go first, and their next requests
			// leave; meanwhile more answers gather. Without it, an exchange
			// costs 1.19 us in place of 1.06 (BenchmarkPipelined).
			runtime.Gosched()
		}
		err := r.read()
		if errors.Is(err, os.ErrDeadlineExceeded) && r.mayReadLate() {
			err = r.readNow()
		}
		switch {
		case err == nil:
			r.now, r.takenAtRead = time.Now(), r.takenBytes.Load()
			return nil
		case errors.Is(err, io.EOF) && r.started && r.response.phase == inUntilClose:
			r.now = time.Now()
			return r.completeOldest() // which returns errFinished
		case !errors.Is(err, os.ErrDeadlineExceeded) && !socket.WouldBlock(err):
			return err
		}
		r.lateReads = 0
		if err := r.sweep(); err != nil {
			return err
		}
	}
}

// more reads from the socket: what comes first, bytes or the reader's deadline.
func (r *reader) read() error {
	r.mayRead = true
	_, err := r.br.Peek(r.br.Buffered() + 1)
	r.mayRead = false
	return err
}

// moreNow is more without waiting, whatever the deadline is.
func (r *reader) readNow() error {
	r.sock.SetNonblocking(true)
	err := r.read()
	r.sock.SetNonblocking(false)
	return err
}

// maxLooks is how often the reader goes on reading what has come although its
// deadline has passed, so that an SSP that sends without end holds up no sweep.
const maxLateReads = 64

// mayLook reports whether the reader may look for bytes that came before its
// deadline, and which it was too late to read. No look of a caller (quiet) may be
// under way: the oldest request has been handed to Write, and a caller looks only
// before that, while no other is outstanding.
func (r *reader) mayReadLate() bool {
	e := r.oldest()
	if e == nil || e.start >= r.takenBytes.Load() || r.lateReads == maxLateReads {
		return false
	}
	r.lateReads++
	return true
}

// start begins e's answer, whose first byte is buffered.
func (r *reader) start(e *entry) {
	r.started = true
	r.response.start(e.method)
	if e.ex == nil {
		r.response.discard = true
	} else {
		e.ex.Times.FirstByte = r.now
	}
}

// complete ends the oldest entry, whose answer is whole.
func (r *reader) completeOldest() error {
	reason := upstream.NotClosed
	switch {
	case r.lastResponse:
		reason = upstream.ClosedByPeer
	case r.response.header.notReusable:
		reason = upstream.ClosedError
	case r.outstanding.Load() == 1 && r.leftover():
		reason = upstream.ClosedLeftover
	case !r.firstReported:
		r.firstReported = true
		r.firstResponseDone()
	}
	if reason != upstream.NotClosed && r.setCloseReason(reason) {
		r.owner.Changed()
	}
	e := r.pop()
	r.started = false
	r.answeredTo = e.end
	if h := r.opts.HeadWait; h != nil {
		h.ObserveDuration(max(0, r.oldestSince.Sub(e.acquired)))
	}
	r.oldestSince = r.now
	r.wakeWhenOverdue()
	r.releaseEntry(&e, nil)
	if reason != upstream.NotClosed {
		return errNotReusable
	}
	if r.CloseReason() != upstream.NotClosed && !r.hasWaiting() {
		return errNoWaiters
	}
	return nil
}

// leftover reports whether bytes lie behind the answer, while no other is
// outstanding. The answer's caller has not been told yet, so none can have come
// for a request of its own.
//
// It looks where reads do not tell: TLS may hold bytes that it has decrypted,
// and below it some may have been read ahead.
func (r *reader) leftover() bool {
	if r.br.Buffered() > 0 {
		return true
	}
	if !r.full && !r.sock.ReadAhead() {
		return false
	}
	if r.readNow() != nil {
		return false // nothing, or what the next Read says too
	}
	r.now, r.takenAtRead = time.Now(), r.takenBytes.Load()
	return r.outstanding.Load() == 1
}
