package http2codec

import (
	"encoding/binary"
	"math"

	h2 "golang.org/x/net/http2"
)

// NoLimit means that no limit was stated.
const NoLimit = math.MaxUint32

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
