package http1

import (
	"bufio"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/socket"
)

// Pipelined is an HTTP/1.1 connection that carries up to Options.Depth exchanges at once. Requests are gathered into
// few writes; responses arrive in the order of the requests. RFC 9112, section 9.3.2.
//
// After a connection breaks, it is unknown which of its requests the SSP processed. The setting
// `pipeline_methods` therefore keeps POST away from pipelined connections by default.
//
// One goroutine reads, from NewPipelined until the socket is closed. There is no writer goroutine: a caller encodes
// its request into the shared buffer, and if no other goroutine is writing, the caller writes the whole buffer; see
// flush. There are no timers for callers: the reader's deadline is the earliest deadline of all callers; see sweep.
// BenchmarkPipelined, 64 callers on one connection: 1.06 us of CPU per exchange, including the peer's half; with a
// timer for each caller 1.33 us.
//
// Only the reader completes exchanges. A caller that abandons its exchange asks the reader to complete the exchange.
// So the reader never writes into an exchange whose caller has returned. The reader still reads the response of an
// abandoned exchange, and drops it.
//
// On a new connection, all requests but the first wait until the first request has its response and the connection
// has stayed open. So a peer that closes after each response never sees a request twice. As section 9.3.2 demands,
// requests that failed on one connection are not pipelined at once on the next connection; the pool ensures that.
//
//	open ──close announced, write failed, linger ended──▶ closing ──no caller waits──▶ closed
//	  └──────────EOF, violation, unsolicited bytes, Close──────────────────────────────▶
//
// Open means that CloseReason is NotClosed. A closing connection takes no more requests; its current requests still
// get the responses that arrive. pipelinedoverdue.go says when an open connection temporarily takes no requests.
type Pipelined struct {
	net   net.Conn     // sock itself, or TLS on top of it
	sock  *socket.Conn // the socket below net
	owner exchange.Owner
	opts  *Options

	reason      atomic.Uint32 // exchange.CloseReason
	overdue     atomic.Bool   // see noteOverdue
	idleLimit   atomic.Int64  // see IdleLimit
	outstanding atomic.Int32  // entries in arrived and in queue; at most opts.Depth
	// Offsets in bytes since the connection was opened: respondedBytes <= takenBytes <= queuedBytes.
	takenBytes     atomic.Int64 // bytes that were passed to Write, less those that a failed Write left unwritten
	respondedBytes atomic.Int64 // bytes of requests that had their responses at the reader's last Read

	mu           sync.Mutex // guards the fields below; never held across I/O or a call of owner
	out          *[]byte    // requests that no goroutine has taken to write; nil if there are none
	queuedBytes  int64      // offset of the next request
	entered      int        // number of exchanges that have entered the pipeline
	first        int        // length of the first request
	arrived      []entry    // entries that the reader has not taken over yet, in order
	writing      bool       // a goroutine is in flush, or is about to be
	writeUntil   time.Time  // when the current write fails, if it must wait
	writingEnded sync.Cond  // of mu; signalled when writing becomes false after writesEnded
	firstDone    bool       // the first response has arrived, and the connection stayed open
	writesEnded  bool       // no more bytes may be written
	writeErr     error      // the error of the write that failed
	sweepAgain   bool       // the reader must sweep before it waits
	wakeAt       time.Time  // the reader's deadline, zero for none; never after a waiting caller's deadline
	latest       time.Time  // the latest deadline of any caller so far

	reader reader
}

var _ exchange.Conn = (*Pipelined)(nil)

// entry is one exchange in the pipeline.
type entry struct {
	ex         *exchange.Exchange // nil after its caller has returned
	method     exchange.Method
	start, end int64 // offsets of the request's bytes
	acquired   time.Time
	deadline   time.Time     // the exchange's deadline, or the time when it was abandoned, if earlier
	usual      time.Duration // the exchange's UsualTimeout
	ticket     exchange.Ticket
}

// NewPipelined returns a connection on c, which is sock or a TLS connection on it. Its goroutine
// ends when Close is called, or when the peer closes or violates the protocol.
func NewPipelined(c net.Conn, sock *socket.Conn, owner exchange.Owner, opts *Options) *Pipelined {
	p := &Pipelined{
		net: c, sock: sock, owner: owner, opts: opts,
		arrived: make([]entry, 0, opts.Depth),
	}
	p.writingEnded.L = &p.mu
	p.idleLimit.Store(int64(exchange.NoIdleLimit))
	sock.OnWait(nil, p.writeBy)
	p.reader = reader{
		Pipelined: p,
		queue:     make([]entry, opts.Depth),
		response:  opts.newResponseReader(),
	}
	p.reader.br = bufio.NewReaderSize((*source)(&p.reader), opts.pipelineBuffer())
	go p.reader.run()
	return p
}

// pipelineBuffer is the size of a pipelined connection's read buffer, which it keeps for life. It
// has 2 KB for each place, at most 64 KB, and enough for a message head.
func (o *Options) pipelineBuffer() int {
	return max(min(o.Depth*(2<<10), 64<<10), o.MaxResponseHeaderBytes)
}

// Protocol returns exchange.HTTP1Pipelined.
func (p *Pipelined) Protocol() exchange.Protocol { return exchange.HTTP1Pipelined }

// Places returns Options.Depth, or 0 if the connection takes no more requests, or its oldest response
// is overdue.
func (p *Pipelined) Places() int {
	if p.CloseReason() != exchange.NotClosed || p.overdue.Load() {
		return 0
	}
	return p.opts.Depth
}

// CloseReason implements exchange.Conn.
func (p *Pipelined) CloseReason() exchange.CloseReason {
	return exchange.CloseReason(p.reason.Load())
}

// IdleLimit implements exchange.Conn.
func (p *Pipelined) IdleLimit() time.Duration { return time.Duration(p.idleLimit.Load()) }

// Idle implements exchange.Conn. The reader notices every change at once, so nothing is checked
// here.
func (p *Pipelined) Idle() bool { return p.CloseReason() == exchange.NotClosed }

// Close implements exchange.Conn.
func (p *Pipelined) Close(r exchange.CloseReason) {
	if p.setCloseReason(r) && p.outstanding.Load() == 0 && r.OfIdle() {
		p.net.Close()
	} else {
		p.sock.Close()
	}
}

// setCloseReason sets the close reason and returns true, unless a reason is already set. If it returns true, the
// caller must report the change to the owner, unless the owner itself closes the connection.
func (p *Pipelined) setCloseReason(r exchange.CloseReason) (first bool) {
	return p.reason.CompareAndSwap(uint32(exchange.NotClosed), uint32(r))
}

// Do implements exchange.Conn. The caller writes the request itself only if few bytes are outstanding, so that the
// write does not block; otherwise another goroutine writes. See flush.
func (p *Pipelined) Do(ex *exchange.Exchange) error {
	ex.Protocol = exchange.HTTP1Pipelined
	duty, err := p.enter(ex)
	if err != nil {
		ex.Times.Done = time.Now()
		p.owner.Freed(ex.Times.Done.Sub(ex.Times.Acquired), ex.Ticket)
		return err
	}
	if duty != writeNothing {
		// The yield lets other callers that are ready append their requests first, so that all requests leave in one
		// write. Without other callers the yield costs nothing. Without the yield, an exchange costs 5.7 us instead
		// of 1.06 us (BenchmarkPipelined).
		runtime.Gosched()
		if duty == checkAndWrite && !p.socketIsQuiet() {
			// The reader fails the entry of this request, of which no byte was sent.
			p.sock.Close()
			p.mu.Lock()
			p.stopWritingLocked()
			p.mu.Unlock()
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
		p.mu.Lock()
		p.wakeReaderLocked()
		p.mu.Unlock()
		return <-ex.Done()
	}
}

// writeDuty is what a caller must do after its request is in the buffer.
type writeDuty uint8

const (
	writeNothing  writeDuty = iota // another goroutine writes
	writeAll                       // no goroutine writes
	checkAndWrite                  // no goroutine writes, and no other request is outstanding on a reused connection
)

// enter puts ex into the pipeline. If it returns an error, ex is not in the pipeline and nothing
// was sent.
func (p *Pipelined) enter(ex *exchange.Exchange) (writeDuty, error) {
	if !ex.Deadline.After(ex.Times.Acquired) {
		return writeNothing, exchange.ErrDeadlineNotSent
	}
	r := &ex.Request
	p.mu.Lock()
	defer p.mu.Unlock()
	// Set before any error: the number of retries after a close of a reused connection depends on
	// it.
	ex.Reused = p.queuedBytes > 0
	switch closed := p.CloseReason(); {
	case closed == exchange.ClosedByPeer && ex.Reused:
		return writeNothing, errUnwritten
	case closed != exchange.NotClosed && ex.Reused:
		return writeNothing, errClosedToo
	case closed != exchange.NotClosed:
		return writeNothing, errClosed
	case p.overdue.Load():
		return writeNothing, errBehindOverdue
	case p.out != nil && len(*p.out)+len(r.Fields)+len(r.Target)+len(r.Body) > maxUnwritten:
		return writeNothing, errUnwrittenFull
	}
	ahead := int(p.outstanding.Add(1)) - 1
	if ahead >= p.opts.Depth {
		panic("BUG: more exchanges than places")
	}
	ex.Served = (p.entered - ahead) / (ahead + 1)
	p.entered++
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
	p.arrived = append(p.arrived, entry{ex: ex, method: r.Method, start: start, end: p.queuedBytes, acquired: ex.Times.Acquired, deadline: ex.Deadline, usual: ex.UsualTimeout, ticket: ex.Ticket})
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

// socketIsQuiet checks the socket before a request that will be the only outstanding request: bytes that have already
// arrived cannot be its response. The reader does the same for bytes that it has already read, by comparing with
// takenBytes. If socketIsQuiet returns false, it has set the close reason.
//
// It costs one system call, 3 % of an exchange, but only for a lone request. Under load other
// requests are nearly always outstanding.
func (p *Pipelined) socketIsQuiet() bool {
	r := exchange.ClosedByPeer
	switch p.sock.PeekSocket() {
	case socket.Quiet:
		return true
	case socket.Readable:
		r = exchange.ClosedUnsolicited
	}
	if p.setCloseReason(r) {
		p.owner.Changed()
	}
	return false
}

// setWakeLocked sets the reader's deadline; a zero time means none.
func (p *Pipelined) setWakeLocked(t time.Time) {
	p.wakeAt = t
	p.sock.SetReadDeadline(t)
}

// wakeReaderLocked makes the reader sweep.
func (p *Pipelined) wakeReaderLocked() {
	p.sweepAgain = true
	p.setWakeLocked(time.Unix(1, 0))
}
