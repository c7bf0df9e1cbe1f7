package http2

import (
	"errors"
	"io"
	"sync"
	"time"

	"adbuffer/internal/machine/alarm"
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// Owner is the user of a connection. It is called with the connection's lock held,
// and must neither wait nor call the connection.
type Owner interface {
	// Open takes the header of a well-formed request. b is valid during the call. last says that there is no body. If
	// Open returns a response, the response is sent at once, the request is not served, and its body is discarded.
	Open(s *Stream, b *http2codec.RequestBlock, last bool) (Request, *Response)
	// Timeouts returns how long a client may take to send a body, and to read a response.
	Timeouts() (read, write time.Duration)
	// Violated reports the client's violation of HTTP/2.
	Violated(rule string)
	// Refused reports a request that got no stream. violation is the error in its header.
	Refused(violation string)
	// TooManyStreams and TooMuchUnread report a request that got no stream because of a limit of
	// the connection: see Options.MaxStreams and MaxUnread.
	TooManyStreams()
	TooMuchUnread(bytes int)
	// Unsent is called while a write waits for the client, and when the wait has ended. n is by how many bytes the
	// memory of waiting frames has grown; it is negative if that memory has shrunk.
	Unsent(n int)
	// Pause delays the next Read by d, in addition to earlier calls.
	Pause(d time.Duration)
	// Interrupt makes every Read that waits, now or later, fail. HangUp closes the socket.
	Interrupt()
	HangUp()
}

// Request is a request that the Owner handles. All methods but Serve are called with the
// connection's lock held, and must neither wait nor call the connection. A Response that one of
// them returns is valid until Release.
type Request interface {
	// Data takes a piece of the body. If it returns a response, the request is refused.
	Data(p []byte) *Response
	// Await is called once if the rest of the body has not arrived.
	Await()
	// TimedOut refuses a request whose body did not arrive in time. Dropped refuses a request for
	// which Drop was called.
	TimedOut() *Response
	Dropped() *Response
	// Serve makes the response of a whole request. It runs on a goroutine of its own, and is never
	// called after another method has returned a response.
	Serve() *Response
	// Unread is called once if the client has to read before the rest of the response can be
	// written. It must not block.
	Unread()
	// Cancel is called while Serve runs, when the client no longer wants the response.
	Cancel()
	// Release is called once, when the request and its response are no longer needed.
	Release()
}

// Response is the response to a request.
type Response struct {
	Status   int
	Fields   []byte // lines of HTTP/1 without the empty one; they include Content-Length
	Body     []byte
	Trailers []byte // lines of HTTP/1
	Drain    bool   // drain the connection
	// Pause is how long a connection with one open stream is not read after this response.
	Pause time.Duration
}

// Options are the limits of a connection.
type Options struct {
	// MaxStreams is how many streams a client may have open. It also bounds the requests that are
	// served at once, including those whose stream was reset.
	MaxStreams int
	// MaxHeaderList bounds a request's header list, counted as in RFC 9113, section 6.5.2. A longer
	// list is refused; a much longer one closes the connection.
	MaxHeaderList int
	// StreamWindow is how much of a body a client may send ahead. At least 65535.
	StreamWindow int
	// MaxUnread bounds the bytes of responses that the client has not read. At three quarters of MaxUnread and above,
	// new streams are refused. A response that would exceed MaxUnread is dropped, unless the connection holds no
	// other response.
	MaxUnread int
	// ParkAfter is how long a connection without streams must be silent before Serve returns
	// ErrIdle.
	ParkAfter time.Duration
}

// connWindow is the receive window of the connection.
const connWindow = 1 << 20

// ErrIdle is the error of Serve when the connection is idle. Serve may be called again.
var ErrIdle = errors.New("the HTTP/2 connection is idle")

// errDone closes a connection that was drained, or whose request came too slowly.
var errDone = errors.New("the HTTP/2 connection is done")

// Conn is a client's connection.
type Conn struct {
	rw    io.ReadWriter // nil between Leave and Use, like owner
	owner Owner
	opts  Options

	in reader // used only by Serve's goroutine

	mu      sync.Mutex // guards the fields below
	written sync.Cond  // a write has ended
	serving bool       // Serve was called, and has not returned
	closed  bool       // no stream is open, and none can be opened
	err     error      // the reason for closed
	streams table
	lastID  uint32 // the highest stream that the client has opened
	running int    // calls of Request.Serve
	// ghosts counts the calls of Request.Serve whose stream is gone. They count as streams for MaxStreams, so that a
	// client that resets streams, or provokes resets by the server, gets no more work done at once than other clients
	// (CVE-2023-44487, CVE-2025-8671).
	ghosts  int
	held    int // bytes of responses that are not written; see Options.MaxUnread
	ready   []*Stream
	fresh   []*Stream // opened by the current frames, body not complete
	workers []*worker // workers that wait for a request
	// trimming says that endSurplusWorkers is due.
	trimming bool
	encoder  http2codec.Encoder
	out      writer
	waiting  queue // streams that have a body to send and room in their own window
	windows  http2codec.SendWindows
	// inPieces: the connection's last WINDOW_UPDATE allowed less than a frame, see hasWindowLocked.
	inPieces bool
	received http2codec.ReceiveWindow
	flood    http2codec.Flood
	drain    drain
	alarm    alarm.Alarm // see watchLocked
	idleAt   time.Time   // since when no request is open; zero while one is
}

// New returns a connection that reads and writes rw. Serve runs it.
func New(rw io.ReadWriter, owner Owner, opts Options) *Conn {
	opts.StreamWindow = max(opts.StreamWindow, http2codec.InitialWindow)
	c := &Conn{
		rw: rw, owner: owner, opts: opts,
		encoder:  http2codec.NewResponseEncoder(),
		windows:  http2codec.NewSendWindows(),
		received: http2codec.NewReceiveWindow(connWindow),
	}
	c.written.L = &c.mu
	c.appendPrefaceLocked() // no other goroutine has c yet
	c.in.init(opts)
	return c
}

// Leave detaches the connection from its owner while Serve does not run. The connection then does
// nothing until Use is called. Leave returns false, and does nothing, if the connection is no
// longer idle.
func (c *Conn) Leave() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.drain.announced || !c.isIdleLocked() {
		return false
	}
	c.rw, c.owner = nil, nil
	return true
}

// Use attaches the connection to a new socket and a new owner after Leave.
func (c *Conn) Use(rw io.ReadWriter, owner Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rw, c.owner = rw, owner
}

// Idle returns the time since which no request is open, or zero if one is.
func (c *Conn) Idle() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.idleAt
}

func (c *Conn) isIdleLocked() bool {
	return len(c.streams.open) == 0 && c.running == 0 && !c.out.Writing && len(c.out.Frames) == 0
}

// closeLocked closes all streams. Bytes in the buffer may still be written.
func (c *Conn) closeLocked(err error) {
	if c.closed {
		return
	}
	c.closed, c.err = true, err
	c.alarm.Stop()
	c.drain.stop()
	for len(c.streams.open) > 0 {
		c.dropLocked(c.streams.open[len(c.streams.open)-1])
	}
	c.dispatchLocked() // releases the streams that are ready to be served, since all streams are gone
	for _, s := range c.fresh {
		c.unholdLocked(s)
	}
	c.fresh = nil
	c.stopWorkersLocked()
}

// violatedLocked closes the connection for a violation, and sends the client a GOAWAY. RFC 9113,
// section 5.4.1.
func (c *Conn) violatedLocked(v *http2codec.Error) {
	if c.closed {
		return
	}
	c.owner.Violated(v.Text)
	c.closeLocked(v)
	c.owner.Interrupt() // this goroutine may not be the reader
	c.out.Frames = http2codec.AppendGoAway(c.out.Frames, c.lastID, v.Code, v.Text)
}

// Close closes the connection: its socket has failed or is about to be closed. The caller writes
// the bytes that can be written without waiting.
func (c *Conn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && !c.out.Failed && !c.out.Writing && !c.drain.final {
		goaway := http2codec.AppendGoAway(c.out.Frames, c.lastID, h2.ErrCodeNo, "")
		c.out.Frames = nil
		c.rw.Write(goaway) //nolint:errcheck // an error changes nothing
	}
	c.closeLocked(errDone)
	c.releaseSentLocked()
}
