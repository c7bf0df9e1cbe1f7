package http2

import (
	"time"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// resets holds the abandoned exchanges whose places are not free yet.
//
// The peer may continue to work on a stream that adbuffer has reset; a peer that hangs does not even read the reset.
// So a place is freed only after the peer has acknowledged a PING that follows the RST_STREAM. That keeps adbuffer
// from sending more and more requests to an SSP that cannot keep up, and it detects an SSP that hangs. One PING is
// outstanding at a time; places of later resets wait for the next PING. Guarded by Conn.mu.
type resets struct {
	pinged   []place // wait for the outstanding PING
	unpinged []place // wait for the next PING
	// responded says that the peer has sent HEADERS or DATA since the last PING. noPings says that the peer had sent
	// neither when it acknowledged the last PING. Then adbuffer sends no more PINGs, and frees places at once, until
	// the peer responds to a request: gRPC servers close connections on which PINGs outnumber responses.
	responded, noPings bool
	reads              uint64 // Conn.reads.done when the PING was sent
	timer              *time.Timer
}

// place is the place of an abandoned exchange.
type place struct {
	acquired time.Time
	ticket   exchange.Ticket
}

// resetPing is the content of these PINGs, by which their acknowledgements are recognised.
var resetPing = [8]byte{'r', 'e', 's', 'e', 't'}

// pending returns how many places wait.
func (r *resets) pending() int { return len(r.pinged) + len(r.unpinged) }

// add keeps p, the place of an abandoned exchange whose RST_STREAM is in the buffer, until it can be freed. kept is
// false if the place can be freed now.
func (r *resets) add(c *Conn, p place) (kept bool) {
	switch {
	case c.closed:
		return false
	case len(r.pinged) > 0:
		r.unpinged = append(r.unpinged, p)
	case r.noPings:
		return false
	default:
		r.pinged = append(r.pinged, p)
		r.ping(c)
	}
	return true
}

func (r *resets) ping(c *Conn) {
	c.out.Frames = http2codec.AppendPing(c.out.Frames, 0, resetPing[:])
	r.responded = false
	r.reads = c.reads.done.Load()
	if r.timer == nil {
		r.timer = time.AfterFunc(c.opts.PingTimeout, c.resetPingTimeout)
	} else {
		r.timer.Reset(c.opts.PingTimeout)
	}
}

// acked handles the acknowledgement of the outstanding PING.
func (r *resets) acked(c *Conn) {
	if len(r.pinged) == 0 {
		return
	}
	r.timer.Stop()
	r.free(c, &r.pinged)
	r.noPings = !r.responded
	if r.noPings {
		r.free(c, &r.unpinged)
	}
	if len(r.unpinged) == 0 {
		return
	}
	r.pinged, r.unpinged = r.unpinged, r.pinged
	r.ping(c)
}

// onResponse records that the peer has sent HEADERS or DATA.
func (r *resets) onResponse() { r.responded, r.noPings = true, false }

// free makes unlock free the places of list.
func (r *resets) free(c *Conn, list *[]place) {
	c.freed = append(c.freed, *list...)
	*list = (*list)[:0]
}

// freeAll frees all places, since the connection is closed.
func (r *resets) freeAll(c *Conn) {
	if r.timer != nil {
		r.timer.Stop()
	}
	r.free(c, &r.pinged)
	r.free(c, &r.unpinged)
}

// resetPingTimeout handles a PING without acknowledgement. If the peer has sent anything since the
// PING, it is alive and only ignores PINGs. If it has sent nothing, the connection is closed.
func (c *Conn) resetPingTimeout() {
	c.mu.Lock()
	if c.closed || len(c.resets.pinged) == 0 {
		c.mu.Unlock()
		return
	}
	if c.reads.done.Load() != c.resets.reads {
		c.resets.acked(c)
	} else {
		c.closeLocked(exchange.ClosedTimeout, exchange.Errorf(exchange.ConnLost, exchange.MaybeProcessed,
			"the SSP is silent: it did not acknowledge an HTTP/2 PING"))
		c.closeSocketLocked()
	}
	c.unlockAndWrite(nil, nil)
}

// onPingLocked acknowledges a PING, or handles an acknowledgement. RFC 9113, section 6.7.
func (c *Conn) onPingLocked(f http2codec.Frame) *http2codec.Error {
	if !f.Flags.Has(h2.FlagPingAck) {
		c.out.Frames = http2codec.AppendPing(c.out.Frames, h2.FlagPingAck, f.Payload)
		return c.flood.Idle()
	}
	if [8]byte(f.Payload) != resetPing {
		return c.flood.Idle()
	}
	c.resets.acked(c)
	return nil
}
