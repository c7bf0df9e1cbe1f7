package http2

import (
	"encoding/binary"
	"math"

	h2 "golang.org/x/net/http2"
)

// peerSettings are what the peer asks for. RFC 9113, section 6.5.2.
type peerSettings struct {
	maxStreams    uint32
	initialWindow uint32
	maxFrame      uint32
	maxHeaderList uint32
}

const noLimit = math.MaxUint32

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

// onSettings takes the peer's settings, in the order in which they stand, and
// acknowledges them.
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
	case len(f.payload)%6 != 0:
		return frameSizeError("SETTINGS of a wrong size")
	}
	c.mu.Lock()
	defer c.unlock()
	if !c.in.gotSettings {
		c.in.gotSettings = true
		c.peer.maxStreams = noLimit
	}
	for p := f.payload; len(p) > 0; p = p[6:] {
		if err := c.setLocked(h2.SettingID(binary.BigEndian.Uint16(p)), binary.BigEndian.Uint32(p[2:])); err != nil {
			return err
		}
	}
	c.updateLocked()
	c.out.buf = appendFrameHeader(c.out.buf, 0, h2.FrameSettings, h2.FlagSettingsAck, 0)
	return c.flood.idle()
}

func (c *Conn) setLocked(id h2.SettingID, value uint32) *connError {
	switch id {
	case h2.SettingEnablePush:
		if value != 0 {
			return protocolError("SETTINGS_ENABLE_PUSH from a server")
		}
	case h2.SettingMaxConcurrentStreams:
		c.peer.maxStreams = value
	case h2.SettingInitialWindowSize:
		if value > maxWindow {
			return flowError("SETTINGS_INITIAL_WINDOW_SIZE over 2^31-1")
		}
		return c.shiftWindowsLocked(value)
	case h2.SettingMaxFrameSize:
		if value < maxFrameSize || value > 1<<24-1 {
			return protocolError("SETTINGS_MAX_FRAME_SIZE out of range")
		}
		c.peer.maxFrame = value
	case h2.SettingHeaderTableSize:
		c.encoder.setMax(value)
	case h2.SettingMaxHeaderListSize:
		c.peer.maxHeaderList = value
	}
	return nil // others are not for us: RFC 9113, section 6.5.2
}

// shiftWindowsLocked changes the windows of open streams by as much as the
// initial one changes, below zero if it must be: RFC 9113, section 6.9.2.
func (c *Conn) shiftWindowsLocked(initial uint32) *connError {
	delta := int64(initial) - int64(c.peer.initialWindow)
	c.peer.initialWindow = initial
	for i := range c.streams.slots {
		s := c.streams.slots[i].stream
		if s == nil {
			continue
		}
		if s.sendWindow += delta; s.sendWindow > maxWindow {
			return flowError("SETTINGS_INITIAL_WINDOW_SIZE makes a window overflow")
		}
	}
	c.wakeLocked()
	return nil
}
