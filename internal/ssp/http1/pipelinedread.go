package http1

import (
	"bufio"
	"errors"
	"io"
	"os"
	"runtime"
	"time"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/socket"
)

// reader is the half of a Pipelined connection that belongs to its reading goroutine. Only that
// goroutine uses its fields.
type reader struct {
	*Pipelined

	br        *bufio.Reader // reads from source
	mayRead   bool          // source may read the socket; otherwise it returns errNothingBuffered
	full      bool          // the last Read filled its buffer
	lateReads int           // reads after the deadline passed; see maxLateReads

	queue         []entry // a ring of opts.Depth: n entries from head on, the oldest first
	head, n       int
	response      responseReader // of the oldest entry
	started       bool           // a byte of that response has arrived
	firstReported bool           // firstResponseDone was called
	lastResponse  bool           // the peer has announced the close, so the oldest entry gets the last response

	now         time.Time // when the last Read returned, or the last sweep began
	takenAtRead int64     // takenBytes at now: bytes that have arrived cannot respond to later requests
	respondedTo int64     // requests before this offset have their responses
	oldestSince time.Time // when the last response was complete, and so the oldest entry became the oldest
}

// run reads until the connection cannot be used any more, and fails the remaining entries.
func (r *reader) run() { r.closeAndFail(r.serve()) }

// Reasons for serve to return other than a failure of the connection or of a response.
var (
	errNothingBuffered = errors.New("nothing buffered")
	errNotReusable     = errors.New("the connection cannot be used after the last response")
	errNoWaiters       = errors.New("no caller waits for a response")
	errUnsolicited     = errors.New("the SSP sent an unsolicited response")
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
			r.wakeForAbandoned()
			err = nil
		}
		if err != nil {
			return err
		}
	}
}

// source is the input of the bufio.Reader. It reads the socket only if mayRead is set, so that
// parsing never blocks but returns errNothingBuffered.
type source reader

func (s *source) Read(b []byte) (int, error) {
	if !s.mayRead {
		return 0, errNothingBuffered
	}
	n, err := s.net.Read(b)
	s.full = n == len(b)
	return n, err
}

// fill waits for more bytes, and sweeps after wakeReaderLocked.
func (r *reader) fill() error {
	r.respondedBytes.Store(r.respondedTo)
	for {
		if !r.sock.ReadAhead() {
			// The yield lets callers that were completed run first and send their next requests, while more responses
			// arrive. Without the yield, an exchange costs 1.19 us instead of 1.06 us (BenchmarkPipelined).
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
			return r.completeOldest() // it returns errNotReusable
		case !errors.Is(err, os.ErrDeadlineExceeded) && !socket.WouldBlock(err):
			return err
		}
		r.lateReads = 0
		if err := r.sweep(); err != nil {
			return err
		}
	}
}

// read waits for bytes from the socket, or for the reader's deadline.
func (r *reader) read() error {
	r.mayRead = true
	_, err := r.br.Peek(r.br.Buffered() + 1)
	r.mayRead = false
	return err
}

// readNow reads without waiting, whatever the deadline is.
func (r *reader) readNow() error {
	r.sock.SetNonblocking(true)
	err := r.read()
	r.sock.SetNonblocking(false)
	return err
}

// maxLateReads bounds how often the reader reads after its deadline has passed, so that an SSP that
// sends without end cannot delay a sweep.
const maxLateReads = 64

// mayReadLate reports whether the reader may look for bytes that arrived before its deadline but have not been read
// yet. No caller may be in socketIsQuiet meanwhile, and none is if the oldest request has been taken: socketIsQuiet
// runs only for a lone request, before that request is taken.
func (r *reader) mayReadLate() bool {
	e := r.oldest()
	if e == nil || e.start >= r.takenBytes.Load() || r.lateReads == maxLateReads {
		return false
	}
	r.lateReads++
	return true
}

// start begins e's response, whose first byte is buffered.
func (r *reader) start(e *entry) {
	r.started = true
	r.response.start(e.method)
	if e.ex == nil {
		r.response.discard = true
	} else {
		e.ex.Times.FirstByte = r.now
	}
}

// completeOldest completes the oldest entry, whose response is complete.
func (r *reader) completeOldest() error {
	reason := exchange.NotClosed
	switch {
	case r.lastResponse:
		reason = exchange.ClosedByPeer
	case r.response.header.notReusable:
		reason = exchange.ClosedError
	case r.outstanding.Load() == 1 && r.hasBytesBehind():
		reason = exchange.ClosedLeftover
	case !r.firstReported:
		r.firstReported = true
		r.firstResponseDone()
	}
	if reason != exchange.NotClosed && r.setCloseReason(reason) {
		r.owner.Changed()
	}
	if limit := int64(r.response.idleLimit); limit != r.idleLimit.Load() {
		r.idleLimit.Store(limit)
	}
	e := r.pop()
	r.started = false
	r.respondedTo = e.end
	if h := r.opts.HeadWait; h != nil {
		h.ObserveDuration(max(0, r.oldestSince.Sub(e.acquired)))
	}
	r.oldestSince = r.now
	r.noteOverdue()
	r.wakeForAbandoned()
	r.releaseEntry(&e, nil)
	if reason != exchange.NotClosed {
		return errNotReusable
	}
	if r.CloseReason() != exchange.NotClosed && !r.hasWaiting() {
		return errNoWaiters
	}
	return nil
}

// hasBytesBehind reports whether bytes follow the response although no other entry is outstanding. The caller of the
// response has not returned yet, so these bytes cannot respond to another request of that caller.
//
// It also checks for bytes that reads do not show: bytes that TLS has decrypted, and bytes that
// were read ahead below TLS.
func (r *reader) hasBytesBehind() bool {
	if r.br.Buffered() > 0 {
		return true
	}
	if !r.full && !r.sock.ReadAhead() {
		return false
	}
	if r.readNow() != nil {
		return false // no bytes, or an error that the next Read returns too
	}
	r.now, r.takenAtRead = time.Now(), r.takenBytes.Load()
	return r.outstanding.Load() == 1
}
