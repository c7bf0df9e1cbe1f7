package http2

import (
	"errors"
	"time"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// Do implements exchange.Conn.
func (c *Conn) Do(ex *exchange.Exchange) error {
	ex.Protocol = exchange.HTTP2
	if !ex.Deadline.After(ex.Times.Acquired) {
		return c.releasePlace(ex, exchange.ErrDeadlineNotSent)
	}
	c.mu.Lock()
	s, err := c.openLocked(ex)
	if err != nil {
		c.unlockAndWrite(nil, nil)
		return c.releasePlace(ex, err)
	}
	c.unlockAndWrite(s, ex)
	if ex.Context == nil {
		err = <-ex.Done()
	} else {
		select {
		case err = <-ex.Done():
		case <-ex.Context.Done():
			err = c.cancel(s, ex)
		}
	}
	if errors.Is(err, exchange.ErrDeadline) || errors.Is(err, exchange.ErrCancelled) {
		return err // abandonLocked frees the place
	}
	return c.releasePlace(ex, err)
}

// cancel ends an exchange whose context has ended, unless the exchange has ended meanwhile.
func (c *Conn) cancel(s *stream, ex *exchange.Exchange) error {
	c.mu.Lock()
	if s.ex == ex { // otherwise s may belong to another exchange now
		c.abandonLocked(s, exchange.ErrCancelled)
	}
	c.unlockAndWrite(nil, nil)
	return <-ex.Done()
}

// releasePlace ends Do and frees its place.
func (c *Conn) releasePlace(ex *exchange.Exchange, err error) error {
	if ex.Times.Done.IsZero() {
		ex.Times.Done = time.Now()
	}
	c.owner.Freed(ex.Times.Done.Sub(ex.Times.Acquired), ex.Ticket)
	return err
}

// openLocked gives ex a stream and appends its request to the buffer, with as much of the body as
// may be sent now.
func (c *Conn) openLocked(ex *exchange.Exchange) (*stream, error) {
	// Set before any error: the number of retries after a close of a reused connection depends on
	// it.
	ex.Reused, ex.Served = c.streams.next > 1, 0
	switch {
	case c.closed && c.endCounted:
		return nil, errClosedToo
	case c.closed:
		return nil, errClosed
	case c.CloseReason() != exchange.NotClosed:
		return nil, errDraining
	case c.out.Writing && len(c.out.Frames) > maxUnwritten:
		return nil, errUnwrittenFull
	case c.streams.active+c.resets.pending() >= c.placesLocked():
		return nil, errNoStream
	}
	if limit := c.peer.MaxHeaderList; limit != http2codec.NoLimit { // RFC 9113, section 10.5.1
		if size := headerListSize(&ex.Request); size > uint64(limit) {
			return nil, headerListTooLarge(size, limit)
		}
	} else if !ex.Isolated && ex.Request.HeadBytes() > exchange.LargeHead {
		return nil, errLargeHead
	}
	ex.Response.Reset()
	s := c.newStreamLocked()
	if !c.streams.add(s) {
		c.recycleLocked(s)
		c.drainLocked(exchange.ClosedMaxRequests)
		return nil, errDraining
	}
	s.ex = ex
	s.start = c.out.End()
	s.spent = c.sendBuffer.spent
	if err := c.appendHeaderLocked(s, &ex.Request); err != nil {
		c.streams.remove(s)
		c.recycleLocked(s)
		c.closeIfDrainedLocked()
		return nil, err
	}
	if c.streams.exhausted() {
		c.drainLocked(exchange.ClosedMaxRequests)
	}
	c.deadlines.alarm.Set(ex.Deadline)
	c.startBodyLocked(s)
	return s, nil
}

func (c *Conn) newStreamLocked() *stream {
	var s *stream
	if n := len(c.free); n > 0 {
		s, c.free = c.free[n-1], c.free[:n-1]
	} else {
		s = new(stream)
	}
	*s = stream{window: http2codec.NewReceiveWindow(c.streamWindow)}
	return s
}

func (c *Conn) recycleLocked(s *stream) {
	if len(s.body) > 0 {
		c.uploads.n--
	}
	s.ex, s.body = nil, nil
	c.free = append(c.free, s)
}

// completeLocked ends the exchange of s with err or nil, and wakes its caller.
func (c *Conn) completeLocked(s *stream, err error) {
	ex := s.ex
	c.streams.remove(s)
	c.recycleLocked(s)
	// Under mu, so that a caller whose context ends knows which event came first.
	ex.Complete(err)
	c.closeIfDrainedLocked()
}

// failLocked ends the exchange of s with err.
func (c *Conn) failLocked(s *stream, err *exchange.Error) {
	s.ex.ReleaseBody()
	s.ex.Response.Reset()
	s.ex.Times.Done = time.Now()
	c.completeLocked(s, err)
}

// resetLocked sends RST_STREAM with code for s, and ends its exchange with err.
func (c *Conn) resetLocked(s *stream, code h2.ErrCode, err *exchange.Error) {
	c.out.Frames = http2codec.AppendReset(c.out.Frames, s.id, code)
	c.flood.Earn()
	c.flood.Expect(c.streamWindow)
	c.failLocked(s, err)
}

// abandonLocked abandons the exchange of s with ErrDeadline or ErrCancelled. Frames that arrive for
// it later are dropped. Its place is freed here, or by resets later.
func (c *Conn) abandonLocked(s *stream, why *exchange.Error) {
	p := place{s.ex.Times.Acquired, s.ex.Ticket}
	c.resetLocked(s, h2.ErrCodeCancel, why)
	if !c.resets.add(c, p) {
		c.freed = append(c.freed, p)
	}
}
