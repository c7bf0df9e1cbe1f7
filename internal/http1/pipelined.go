package http1

import (
	"bufio"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/internal/socket"
	"adbuffer/internal/upstream"
)

// Pipelined is an HTTP/1.1 connection that carries up to Options.Depth
// exchanges at once: requests leave in few writes, answers come in their order.
// RFC 9112, section 9.3.2.
//
// Which methods are worth the risk is not decided here: after a connection
// broke, nobody knows which of its requests were acted on. `pipeline_methods`
// keeps POST away from it, unless that is allowed.
//
// One goroutine reads, from NewPipelined until the socket is closed. There is
// no writer: a caller encodes its request into the shared buffer, and if nobody
// is writing it writes, for all; see flush. And there is no timer for a caller:
// the reader's deadline is the earliest of all, so that it wakes when somebody's
// time is up; see sweep. BenchmarkPipelined, 64 callers on one connection: 1.06
// us of CPU an exchange, the peer's half included; with a timer for each caller
// (Exchange.Wait) it is 1.33.
//
// Only the reader ends exchanges. A caller that gives up asks it to (nudge), so
// nothing is ever written into an exchange whose caller has left. The answer of
// such an exchange is read all the same, and dropped.
//
// A connection proves itself with one request: those that come meanwhile wait
// until it has been answered and the connection has stayed open. So a peer that
// closes after each answer sees no request twice, and requests that failed on
// one connection are not pipelined at once on the next, as section 9.3.2 asks.
//
//	open ──end announced, write failed, head entry hopeless──▶ closing ──nobody waits──▶ closed
//	  └───────────EOF, fault, bytes that nobody asked for, Close──────────────────────────▶
//
// Open means that CloseReason is NotClosed. Closing, it takes no more requests,
// and those that are on it still get what answers come.
type Pipelined struct {
	net   net.Conn     // sock itself, or TLS on top of it
	sock  *socket.Conn // what net stands on
	owner upstream.Owner
	opts  *Options

	reason      atomic.Uint32 // upstream.CloseReason
	outstanding atomic.Int32  // entries, in arrived and in queue; at most opts.Depth
	// Requests are counted in bytes since the connection was opened:
	// answered <= taken <= queued.
	takenBytes    atomic.Int64 // have been handed to Write, and did not fail there
	answeredBytes atomic.Int64 // were answered, as of the reader's last Read

	mu           sync.Mutex // guards the fields below; never held across I/O or a call of owner
	out          *[]byte    // requests that have not been taken; nil for none
	queuedBytes  int64      // where the next request begins
	first        int        // length of the first request
	arrived      []entry    // what the reader has not seen yet, in order
	writing      bool       // a goroutine is in flush or flushBehind, or about to be
	writingEnded sync.Cond  // of mu; signalled when writing ends on a sealed connection
	firstDone    bool       // an answer has come, and the connection stayed open
	writesEnded  bool       // nothing more is written
	writeErr     error      // why, where a write failed
	sweepAgain   bool       // the reader is to look around
	wakeAt       time.Time  // the reader's deadline, zero for none; never after a waiting caller's
	latest       time.Time  // the latest deadline so far

	reader reader
}

var _ upstream.Conn = (*Pipelined)(nil)

// entry is one exchange on the way.
type entry struct {
	ex         *upstream.Exchange // nil once its caller has left
	method     upstream.Method
	start, end int64 // of its request, in bytes since the connection was opened
	acquired   time.Time
	deadline   time.Time // or when its caller left, if that was earlier
}

// NewPipelined returns a connection on c, which is sock or a TLS connection on
// it. It is closed, and its goroutine ends, by Close, or when the peer closes
// or breaks a rule.
func NewPipelined(c net.Conn, sock *socket.Conn, owner upstream.Owner, opts *Options) *Pipelined {
	p := &Pipelined{
		net: c, sock: sock, owner: owner, opts: opts,
		arrived: make([]entry, 0, opts.Depth),
	}
	p.writingEnded.L = &p.mu
	p.reader = reader{
		Pipelined: p,
		queue:     make([]entry, opts.Depth),
		response:  opts.newResponseReader(),
	}
	p.reader.br = bufio.NewReaderSize((*source)(&p.reader), opts.pipelineBuffer())
	go p.reader.run()
	return p
}

// pipelineBuffer is the size of a pipelined connection's read buffer, which it
// keeps as long as it lives: 2 KB for each answer that may come at once, but not
// more than 64 KB; and a head must fit.
func (o *Options) pipelineBuffer() int {
	return max(min(o.Depth*(2<<10), 64<<10), o.MaxResponseHeaderBytes)
}

// Protocol returns upstream.HTTP1Pipelined.
func (p *Pipelined) Protocol() upstream.Protocol { return upstream.HTTP1Pipelined }

// Places returns Options.Depth, or 0 once the connection takes no more.
func (p *Pipelined) Places() int {
	if p.CloseReason() != upstream.NotClosed {
		return 0
	}
	return p.opts.Depth
}

// CloseReason implements upstream.Conn.
func (p *Pipelined) CloseReason() upstream.CloseReason {
	return upstream.CloseReason(p.reason.Load())
}

// Idle implements upstream.Conn. The reader looks all the time.
func (p *Pipelined) Idle() bool { return p.CloseReason() == upstream.NotClosed }

// Close implements upstream.Conn.
func (p *Pipelined) Close(r upstream.CloseReason) {
	if p.setCloseReason(r) && p.outstanding.Load() == 0 {
		switch r {
		case upstream.ClosedIdle, upstream.ClosedMaxAge, upstream.ClosedMaxRequests:
			p.net.Close() //nolint:errcheck // says goodbye where TLS asks for that
			return
		}
	}
	p.sock.Close() //nolint:errcheck // the reader does what is left to do
}

// stop makes r the reason, unless there is one. Who stops the connection tells
// the owner, if it does not know.
func (p *Pipelined) setCloseReason(r upstream.CloseReason) (first bool) {
	return p.reason.CompareAndSwap(uint32(upstream.NotClosed), uint32(r))
}

// Do implements upstream.Conn. Where the request's write might block for longer
// than the caller has, it is not the caller that writes.
func (p *Pipelined) Do(ex *upstream.Exchange) error {
	ex.Protocol = upstream.HTTP1Pipelined
	turn, err := p.enter(ex)
	if err != nil {
		ex.Times.Done = time.Now()
		p.owner.Freed(ex.Times.Done.Sub(ex.Times.Acquired))
		return err
	}
	if turn != writeNothing {
		// Whoever is ready appends its request first; then all leave in one
		// write. Nobody else being ready, this costs nothing. Without it, an
		// exchange costs 5.7 us in place of 1.06 (BenchmarkPipelined).
		runtime.Gosched()
		if turn == checkAndWrite && !p.socketIsQuiet() {
			// The reader fails the entry: nothing of it was sent.
			p.sock.Close() //nolint:errcheck // as said
			p.stopWriting()
		} else {
			p.flush(ex.Deadline)
		}
	}
	if ex.Context == nil {
		return <-ex.Done()
	}
	select {
	case err := <-ex.Done():
		return err
	case <-ex.Context.Done():
		p.wake()
		return <-ex.Done()
	}
}

// turn is what a caller has to do once its request is in the buffer.
type writeDuty uint8

const (
	writeNothing  writeDuty = iota // another writes
	writeAll                       // nobody writes
	checkAndWrite                  // nobody writes, and nothing is outstanding on a connection that was used before
)

// enter puts ex into the pipeline. If it returns an error, ex is not in it, and
// nothing was sent.
func (p *Pipelined) enter(ex *upstream.Exchange) (writeDuty, error) {
	if !ex.Deadline.After(ex.Times.Acquired) {
		return writeNothing, upstream.ErrDeadlineNotSent
	}
	r := &ex.Request
	p.mu.Lock()
	defer p.mu.Unlock()
	// Known before any error: who is told that a kept connection was closed may
	// ask for another as often as there are such.
	ex.Reused = p.queuedBytes > 0
	switch {
	case p.CloseReason() == upstream.ClosedByPeer:
		return writeNothing, errBehindClose
	case p.writesEnded || p.CloseReason() != upstream.NotClosed:
		return writeNothing, errClosed
	case p.out != nil && len(*p.out)+len(r.Fields)+len(r.Target)+len(r.Body) > maxUnwritten:
		return writeNothing, errUnwrittenFull
	}
	ahead := p.outstanding.Add(1) - 1
	if int(ahead) >= p.opts.Depth {
		panic("BUG: more exchanges than places")
	}
	if p.out == nil {
		p.out = buffers.Get().(*[]byte)
		*p.out = (*p.out)[:0]
	}
	had := len(*p.out)
	*p.out = append(appendMessageHead(*p.out, r), r.Body...)
	size := len(*p.out) - had

	start := p.queuedBytes
	p.queuedBytes += int64(size)
	if start == 0 {
		p.first = size
	}
	p.arrived = append(p.arrived, entry{ex: ex, method: r.Method, start: start, end: p.queuedBytes, acquired: ex.Times.Acquired, deadline: ex.Deadline})
	if p.latest.Before(ex.Deadline) {
		p.latest = ex.Deadline
	}
	if p.wakeAt.IsZero() || ex.Deadline.Before(p.wakeAt) {
		p.setWakeLocked(ex.Deadline)
	}
	switch {
	case p.writing || !p.firstDone && start > 0:
		return writeNothing, nil
	case ahead == 0 && start > 0:
		p.writing = true
		return checkAndWrite, nil
	default:
		p.writing = true
		return writeAll, nil
	}
}

// quiet looks at the socket before the only request on it is sent: bytes that
// are there already cannot be its answer. What the reader has in hand it judges
// itself, by taken. If quiet returns false, it has stopped the connection.
//
// It costs one system call, 3 % of an exchange, but only where a request goes
// alone; under load there is nearly always another on its way.
func (p *Pipelined) socketIsQuiet() bool {
	r := upstream.ClosedByPeer
	switch p.sock.PeekSocket() {
	case socket.Quiet:
		return true
	case socket.Readable:
		r = upstream.ClosedUnsolicited
	}
	if p.setCloseReason(r) {
		p.owner.Changed()
	}
	return false
}

// wakeLocked sets the reader's deadline; the zero time is none.
func (p *Pipelined) setWakeLocked(t time.Time) {
	p.wakeAt = t
	p.sock.SetReadDeadline(t) //nolint:errcheck // a closed socket wakes the reader too
}

// nudge makes the reader look around.
func (p *Pipelined) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wakeReaderLocked()
}

func (p *Pipelined) wakeReaderLocked() {
	p.sweepAgain = true
	p.setWakeLocked(time.Unix(1, 0))
}
