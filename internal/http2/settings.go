package http2

import (
	h2 "golang.org/x/net/http2"
)

// peerSettings are what the peer asks for. RFC 9113, section 6.5.2.
type peerSettings struct {
	maxStreams    uint32
	initialWindow uint32
	maxFrame      uint32
	maxHeaderList uint32
}

// defaultPeerSettings hold until the peer's come. There is no limit to streams
// by then, but a peer refuses what it does not like, and 100 is the least that
// it is advised to allow.
var defaultPeerSettings = peerSettings{
	maxStreams:    100,
	initialWindow: initialWindow,
	maxFrame:      maxFrameSize,
	maxHeaderList: noLimit,
}

// connWindow is our receive window of the connection. What has come is in the
// callers' memory already, so a window holds nothing up: bodies are bounded by
// their limits.
const connWindow = 16 << 20

// maxStreamWindow bounds a stream's.
const maxStreamWindow = 4 << 20

// streamWindow is our receive window of a stream: the largest body in one go,
// if that is not too large, and never less than a peer may use before it has
// read our settings.
func streamWindow(maxBody int) int {
	return max(min(maxBody, maxStreamWindow), initialWindow)
}

// appendPreface appends the first bytes of the connection: RFC 9113, section
// 3.4.
func (c *Conn) appendPreface(b []byte) []byte {
	var s []byte
	s = appendSetting(s, h2.SettingEnablePush, 0)
	s = appendSetting(s, h2.SettingInitialWindowSize, uint32(c.streamWindow))
	s = appendSetting(s, h2.SettingMaxHeaderListSize, uint32(min(int64(c.opts.MaxResponseHeaderBytes), noLimit)))
	b = append(b, h2.ClientPreface...)
	b = append(appendFrameHeader(b, len(s), h2.FrameSettings, 0, 0), s...)
	return appendWindowUpdate(b, 0, connWindow-initialWindow)
}

// onSettings takes the peer's settings and acknowledges them.
func (c *Conn) onSettings(f frame) *connError {
	switch {
	case f.id != 0:
		return protocolError("SETTINGS on a stream")
	case f.flags.Has(h2.FlagSettingsAck):
		if len(f.payload) > 0 {
			return frameSizeError("SETTINGS with ACK and content")
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.flood.idle()
	}
	s, err := parseSettings(f.payload)
	switch {
	case err != nil:
		return err
	case s.value[h2.SettingEnablePush] != 0:
		return protocolError("SETTINGS_ENABLE_PUSH from a server")
	}
	c.mu.Lock()
	defer c.unlock()
	if !c.in.gotSettings {
		c.in.gotSettings = true
		c.peer.maxStreams = noLimit
	}
	if err := c.applyLocked(&s); err != nil {
		return err
	}
	c.updateLocked()
	c.out.buf = appendFrameHeader(c.out.buf, 0, h2.FrameSettings, h2.FlagSettingsAck, 0)
	return c.flood.idle()
}

func (c *Conn) applyLocked(s *settingsChange) *connError {
	set := func(id h2.SettingID, to *uint32) {
		if s.has[id] {
			*to = s.value[id]
		}
	}
	set(h2.SettingMaxConcurrentStreams, &c.peer.maxStreams)
	set(h2.SettingMaxFrameSize, &c.peer.maxFrame)
	set(h2.SettingMaxHeaderListSize, &c.peer.maxHeaderList)
	if s.has[h2.SettingHeaderTableSize] {
		c.encoder.setMax(s.smallestTable)
		c.encoder.setMax(s.value[h2.SettingHeaderTableSize])
	}
	if s.has[h2.SettingInitialWindowSize] {
		return c.setInitialWindowLocked(s.value[h2.SettingInitialWindowSize])
	}
	return nil
}

// setInitialWindowLocked changes the windows of all open streams by as much as
// the initial one changes: RFC 9113, section 6.9.2. Streams count from the
// initial window (see windowLocked), so most changes visit no stream. A change
// that may wake uploads, or make a window overflow, visits all of them once;
// flood counts such a visit by what it costs.
func (c *Conn) setInitialWindowLocked(initial uint32) *connError {
	grew := initial > c.peer.initialWindow
	c.peer.initialWindow = initial
	mayWake, mayOverflow := grew && c.uploads.n > 0, int64(initial)+c.maxCredit > maxWindow
	if !mayWake && !mayOverflow {
		return nil
	}
	c.maxCredit = 0
	for i := range c.streams.slots {
		s := c.streams.slots[i].stream
		if s == nil {
			continue
		}
		c.maxCredit = max(c.maxCredit, s.credit)
		c.openedLocked(s)
	}
	if int64(initial)+c.maxCredit > maxWindow {
		return flowError("SETTINGS_INITIAL_WINDOW_SIZE makes a window overflow")
	}
	return c.flood.spend(len(c.streams.slots) / slotsPerFrame)
}

// slotsPerFrame is how many streams can be visited at the cost of a frame.
const slotsPerFrame = 64
