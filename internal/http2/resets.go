package http2

import (
	"time"

	"adbuffer/internal/http2codec"
	"adbuffer/internal/upstream"

	h2 "golang.org/x/net/http2"
)

// resets are the abandoned exchanges whose places are not free yet.
//
// The peer may go on working on a stream that we have reset, and if it hangs
// it does not even know. So a place is lent again only when the peer has
// answered a PING that was sent behind the RST_STREAM: an SSP that does not
// keep up is not sent ever more requests, and one that hangs is found out. One
// PING is under way at a time; places that come up meanwhile wait for the next.
// Conn.mu guards it.
type resets struct {
	pinged   []time.Time // when the places were lent, of those that the PING under way is for
	unpinged []time.Time // the others
	// answered: the peer has sent HEADERS or DATA since our last PING. quiet: it
	// had not when it acknowledged that. Then no other PING is sent, and places
	// are free at once, until it answers something: gRPC servers close
	// connections on which PINGs outnumber answers.
	responded, noPings bool
	reads              uint64 // Conn.reads.done when the PING was sent
	timer              *time.Timer
}

// resetPing is the content of those PINGs, so that their acknowledgements are
// told from others.
var resetPing = [8]byte{'r', 'e', 's', 'e', 't'}

// pending is how many places are kept.
func (r *resets) pending() int { return len(r.pinged) + len(r.unpinged) }

// add keeps the place of an exchange that was abandoned, lent at that time. The
// RST_STREAM is in the buffer. kept is false if the place is free now.
func (r *resets) add(c *Conn, lent time.Time) (kept bool) {
	switch {
	case c.closed:
		return false
	case len(r.pinged) > 0:
		r.unpinged = append(r.unpinged, lent)
	case r.noPings:
		return false
	default:
		r.pinged = append(r.pinged, lent)
		r.ping(c)
	}
	return true
}

func (r *resets) ping(c *Conn) {
	c.out.buf = http2codec.AppendPing(c.out.buf, 0, resetPing[:])
	r.responded = false
	r.reads = c.reads.done.Load()
	if r.timer == nil {
		r.timer = time.AfterFunc(c.opts.PingTimeout, c.resetPingTimeout)
	} else {
		r.timer.Reset(c.opts.PingTimeout)
	}
}

// acked: the PING under way was acknowledged.
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

// onAnswer notes that the peer has sent HEADERS or DATA.
func (r *resets) onResponse() { r.responded, r.noPings = true, false }

// free makes unlock free the places of list.
func (r *resets) free(c *Conn, list *[]time.Time) {
	now := time.Now()
	for _, lent := range *list {
		c.freed = append(c.freed, now.Sub(lent))
	}
	*list = (*list)[:0]
}

// freeAll ends the keeping of places, since the connection has ended.
func (r *resets) freeAll(c *Conn) {
	if r.timer != nil {
		r.timer.Stop()
	}
	r.free(c, &r.pinged)
	r.free(c, &r.unpinged)
}

// resetPingTimeout: the PING was not acknowledged in time. A peer that has said
// anything since is alive and merely does not answer PINGs; one that has not is
// taken for dead.
func (c *Conn) resetPingTimeout() {
	c.mu.Lock()
	if c.closed || len(c.resets.pinged) == 0 {
		c.mu.Unlock()
		return
	}
	if c.reads.done.Load() != c.resets.reads {
		c.resets.acked(c)
	} else {
		c.closeLocked(upstream.ClosedTimeout, &upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.MaybeProcessed,
			Detail: "the SSP is silent: it did not answer an HTTP/2 PING"})
		c.closeSocketLocked()
	}
	c.flush(nil, nil)
}

// onPing answers a PING, or takes an answer. RFC 9113, section 6.7.
func (c *Conn) onPing(f http2codec.Frame) *http2codec.Error {
	switch {
	case f.ID != 0:
		return http2codec.ProtocolError("PING on a stream")
	case len(f.Payload) != 8:
		return http2codec.FrameSizeError("PING of a wrong size")
	}
	c.mu.Lock()
	defer c.unlock()
	if !f.Flags.Has(h2.FlagPingAck) {
		c.out.buf = http2codec.AppendPing(c.out.buf, h2.FlagPingAck, f.Payload)
		return c.flood.Idle()
	}
	if [8]byte(f.Payload) != resetPing {
		return c.flood.Idle()
	}
	c.resets.acked(c)
	return nil
}
