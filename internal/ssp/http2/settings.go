package http2

import (
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// peerSettings are the settings of the peer, without its initial window, which is in Conn.windows. RFC 9113, section 6.5.2.
type peerSettings struct {
	maxStreams    uint32
	maxFrame      uint32
	maxHeaderList uint32
}

// defaultPeerSettings apply until the peer's settings arrive. Until then the RFC sets no limit on streams, but a peer
// may refuse streams beyond its own limit, which the RFC advises to be at least 100.
var defaultPeerSettings = peerSettings{
	maxStreams:    100,
	maxFrame:      http2codec.MaxFrameSize,
	maxHeaderList: http2codec.NoLimit,
}

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
	return http2codec.AppendSettings(append(b, h2.ClientPreface...), connWindow,
		h2.Setting{ID: h2.SettingEnablePush, Val: 0},
		h2.Setting{ID: h2.SettingInitialWindowSize, Val: uint32(c.streamWindow)},
		h2.Setting{ID: h2.SettingMaxHeaderListSize, Val: uint32(min(int64(c.opts.MaxResponseHeaderBytes), http2codec.NoLimit))})
}

// onSettingsLocked applies the peer's settings and acknowledges them.
func (c *Conn) onSettingsLocked(f http2codec.Frame) *http2codec.Error {
	if f.Flags.Has(h2.FlagSettingsAck) {
		return c.flood.Idle()
	}
	s, err := http2codec.ParseSettings(f.Payload)
	switch {
	case err != nil:
		return err
	case s.Value[h2.SettingEnablePush] != 0:
		return http2codec.ProtocolError("SETTINGS_ENABLE_PUSH from a server")
	}
	if !c.in.gotSettings {
		c.in.gotSettings = true
		c.peer.maxStreams = http2codec.NoLimit
	}
	if err := c.applyLocked(&s); err != nil {
		return err
	}
	c.updatePlacesLocked()
	c.out.buf = http2codec.AppendFrameHeader(c.out.buf, 0, h2.FrameSettings, h2.FlagSettingsAck, 0)
	c.sendBodiesLocked() // after the acknowledgement: the bodies may need the new windows
	return c.flood.Idle()
}

func (c *Conn) applyLocked(s *http2codec.SettingsChange) *http2codec.Error {
	set := func(id h2.SettingID, to *uint32) {
		if s.Has[id] {
			*to = s.Value[id]
		}
	}
	set(h2.SettingMaxConcurrentStreams, &c.peer.maxStreams)
	set(h2.SettingMaxFrameSize, &c.peer.maxFrame)
	set(h2.SettingMaxHeaderListSize, &c.peer.maxHeaderList)
	c.encoder.Apply(s)
	if s.Has[h2.SettingInitialWindowSize] {
		return c.setInitialWindowLocked(int64(s.Value[h2.SettingInitialWindowSize]))
	}
	return nil
}

// setInitialWindowLocked changes the windows of all open streams by the change of the initial
// window: RFC 9113, section 6.9.2. A stream counts its credit relative to the initial window (see
// http2codec.Credit), so most changes visit no stream. A change that may continue uploads, or make a window
// overflow, visits all streams once; flood counts the cost of that visit.
func (c *Conn) setInitialWindowLocked(initial int64) *http2codec.Error {
	grew := initial > c.windows.Initial
	c.windows.Initial = initial
	mayContinue, mayOverflow := grew && c.uploads.n > 0, c.windows.Overflows(c.maxCredit)
	if !mayContinue && !mayOverflow {
		return nil
	}
	c.maxCredit = 0
	for i := range c.streams.slots {
		s := c.streams.slots[i].stream
		if s == nil {
			continue
		}
		c.maxCredit = max(c.maxCredit, s.credit)
		c.windowGrewLocked(s)
	}
	if c.windows.Overflows(c.maxCredit) {
		return http2codec.FlowError("SETTINGS_INITIAL_WINDOW_SIZE makes a window overflow")
	}
	return c.flood.Spend(len(c.streams.slots) / slotsPerFrame)
}

// slotsPerFrame is how many streams can be visited at the cost of a frame.
const slotsPerFrame = 64
