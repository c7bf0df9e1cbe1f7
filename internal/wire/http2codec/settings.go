package http2codec

import (
	"encoding/binary"
	"math"

	h2 "golang.org/x/net/http2"
)

// NoLimit means that no limit was stated.
const NoLimit = math.MaxUint32

// Announced are the settings that adbuffer announces, and the receive window of the connection. RFC 9113,
// section 6.5.2.
type Announced struct {
	// MaxStreams is how many streams the peer may open. 0 is for the client's side: it announces that the server may
	// push nothing.
	MaxStreams    int
	StreamWindow  int // at least InitialWindow, which the peer may use before it has read the settings
	MaxHeaderList int
	ConnWindow    int // at least InitialWindow
}

// Append appends SETTINGS, and a WINDOW_UPDATE for the connection's window. They are the first frames of a connection,
// behind a client's preface: section 3.4.
func (a *Announced) Append(b []byte) []byte {
	b = AppendFrameHeader(b, 3*6, h2.FrameSettings, 0, 0)
	if a.MaxStreams == 0 {
		b = AppendSetting(b, h2.SettingEnablePush, 0)
	} else {
		b = AppendSetting(b, h2.SettingMaxConcurrentStreams, uint32(a.MaxStreams))
	}
	b = AppendSetting(b, h2.SettingInitialWindowSize, uint32(a.StreamWindow))
	b = AppendSetting(b, h2.SettingMaxHeaderListSize, uint32(min(int64(a.MaxHeaderList), NoLimit)))
	return AppendWindowUpdate(b, 0, uint32(a.ConnWindow-InitialWindow))
}

// AppendSettingsAck appends the acknowledgement of the peer's SETTINGS.
func AppendSettingsAck(b []byte) []byte {
	return AppendFrameHeader(b, 0, h2.FrameSettings, h2.FlagSettingsAck, 0)
}

// PeerSettings are the settings of a server that bound the requests that a client sends. The other settings are in
// SendWindows and Encoder. Section 6.5.2.
type PeerSettings struct {
	MaxStreams    uint32
	MaxFrame      uint32
	MaxHeaderList uint32
	arrived       bool // a SETTINGS frame has arrived
}

// NewPeerSettings returns the settings that apply until the server's settings arrive. Until then the RFC sets no limit
// on streams, but a server may refuse streams beyond its own limit, which the RFC advises to be at least 100.
func NewPeerSettings() PeerSettings {
	return PeerSettings{MaxStreams: 100, MaxFrame: MaxFrameSize, MaxHeaderList: NoLimit}
}

// Apply applies the settings in a SETTINGS frame.
func (p *PeerSettings) Apply(s *SettingsChange) *Error {
	if s.Value[h2.SettingEnablePush] != 0 {
		return ProtocolError("SETTINGS_ENABLE_PUSH from a server")
	}
	if !p.arrived {
		p.arrived, p.MaxStreams = true, NoLimit
	}
	set := func(id h2.SettingID, to *uint32) {
		if s.Has[id] {
			*to = s.Value[id]
		}
	}
	set(h2.SettingMaxConcurrentStreams, &p.MaxStreams)
	set(h2.SettingMaxFrameSize, &p.MaxFrame)
	set(h2.SettingMaxHeaderListSize, &p.MaxHeaderList)
	return nil
}

// SettingsChange holds the settings in one SETTINGS frame. A setting that the frame contains
// several times has its last value. No frame comes between these values, so the earlier ones have
// no effect. RFC 9113, section 6.5.3.
type SettingsChange struct {
	Value [h2.SettingMaxHeaderListSize + 1]uint32 // by identifier
	Has   [h2.SettingMaxHeaderListSize + 1]bool
	// SmallestTable is the smallest SETTINGS_HEADER_TABLE_SIZE of the frame. An encoder must apply
	// it before it applies the last. RFC 7541, section 4.2.
	SmallestTable uint32
}

// ParseSettings reads the payload of a SETTINGS frame. It checks every value. Its work for a
// setting does not depend on the number of streams.
func ParseSettings(p []byte) (s SettingsChange, err *Error) {
	if len(p)%6 != 0 {
		return s, FrameSizeError("SETTINGS of a wrong size")
	}
	s.SmallestTable = NoLimit
	for ; len(p) > 0; p = p[6:] {
		id, value := h2.SettingID(binary.BigEndian.Uint16(p)), binary.BigEndian.Uint32(p[2:])
		switch {
		case id == 0 || int(id) >= len(s.Value):
			continue // unknown: section 6.5.2
		case id == h2.SettingEnablePush && value > 1:
			return s, ProtocolError("SETTINGS_ENABLE_PUSH is neither 0 nor 1")
		case id == h2.SettingInitialWindowSize && value > MaxWindow:
			return s, FlowError("SETTINGS_INITIAL_WINDOW_SIZE over 2^31-1")
		case id == h2.SettingMaxFrameSize && (value < MaxFrameSize || value > 1<<24-1):
			return s, ProtocolError("SETTINGS_MAX_FRAME_SIZE out of range")
		case id == h2.SettingHeaderTableSize:
			s.SmallestTable = min(s.SmallestTable, value)
		}
		s.Value[id], s.Has[id] = value, true
	}
	return s, nil
}
