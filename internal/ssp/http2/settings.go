package http2

import (
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// connWindow is the receive window of the connection. It never delays a peer: received bytes are
// already in the callers' memory, and the limits of bodies bound them.
const connWindow = 16 << 20

// maxStreamWindow bounds the receive window of a stream.
const maxStreamWindow = 4 << 20

// streamWindow returns the receive window of a stream: the largest body, at most maxStreamWindow.
// It is at least the initial window, which a peer may use before it has read adbuffer's settings.
func streamWindow(maxBody int) int {
	return max(min(maxBody, maxStreamWindow), http2codec.InitialWindow)
}

// appendPreface appends the first bytes of the connection: RFC 9113, section 3.4.
func (c *Conn) appendPreface(b []byte) []byte {
	announced := http2codec.Announced{StreamWindow: c.streamWindow, MaxHeaderList: c.opts.MaxResponseHeaderBytes, ConnWindow: connWindow}
	return announced.Append(append(b, h2.ClientPreface...))
}

// onSettingsLocked applies the peer's settings and acknowledges them.
func (c *Conn) onSettingsLocked(f http2codec.Frame) *http2codec.Error {
	if f.Flags.Has(h2.FlagSettingsAck) {
		return c.flood.Idle()
	}
	s, err := http2codec.ParseSettings(f.Payload)
	if err == nil {
		err = c.peer.Apply(&s)
	}
	if err != nil {
		return err
	}
	c.encoder.Apply(&s)
	if c.windows.Apply(&s, c.uploads.n > 0) {
		for i := range c.streams.slots {
			if s := c.streams.slots[i].stream; s != nil {
				c.windows.Visit(s.credit)
				c.windowGrewLocked(s)
			}
		}
		if err := c.windows.Visited(len(c.streams.slots), &c.flood); err != nil {
			return err
		}
	}
	c.updatePlacesLocked()
	c.out.Frames = http2codec.AppendSettingsAck(c.out.Frames)
	c.sendBodiesLocked() // after the acknowledgement: the bodies may need the new windows
	return c.flood.Idle()
}
