package http2

import (
	"encoding/binary"

	h2 "golang.org/x/net/http2"
)

const (
	frameHeaderLen = 9
	// maxFrameSize is the largest payload that we take, and the largest that
	// every peer takes: the initial SETTINGS_MAX_FRAME_SIZE. RFC 9113, section
	// 4.2.
	maxFrameSize = 1 << 14
	// maxStreamID and maxWindow are the largest numbers of 31 bits.
	maxStreamID = 1<<31 - 1
	maxWindow   = 1<<31 - 1
	// initialWindow is what a window holds before anybody has said anything.
	// RFC 9113, section 6.9.2.
	initialWindow = 65535
)

// frame is one frame as it was read. Its payload is a piece of the read buffer
// and lives until the next read.
type frame struct {
	kind    h2.FrameType
	flags   h2.Flags
	id      uint32 // stream; 0 is the connection
	payload []byte
}

// parseFrame reads the frame at the start of b, and says how many bytes it
// takes: 0 where b does not hold all of it. size is its payload's, as soon as
// it is known.
func parseFrame(b []byte) (f frame, n, size int) {
	if len(b) < frameHeaderLen {
		return frame{}, 0, 0
	}
	size = int(b[0])<<16 | int(b[1])<<8 | int(b[2])
	if len(b) < frameHeaderLen+size {
		return frame{}, 0, size
	}
	return frame{
		kind:    h2.FrameType(b[3]),
		flags:   h2.Flags(b[4]),
		id:      binary.BigEndian.Uint32(b[5:]) & maxStreamID,
		payload: b[frameHeaderLen : frameHeaderLen+size],
	}, frameHeaderLen + size, size
}

// unpad cuts padding off the payload of a DATA or HEADERS frame. ok is false
// if there is more padding than payload. RFC 9113, section 6.1.
func unpad(f frame) (payload []byte, ok bool) {
	p := f.payload
	if !f.flags.Has(h2.FlagDataPadded) {
		return p, true
	}
	if len(p) == 0 || int(p[0]) >= len(p) {
		return nil, false
	}
	return p[1 : len(p)-int(p[0])], true
}

func appendFrameHeader(b []byte, size int, kind h2.FrameType, flags h2.Flags, id uint32) []byte {
	return append(b, byte(size>>16), byte(size>>8), byte(size), byte(kind), byte(flags),
		byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
}

// setFrameHeader writes a frame header to the first nine bytes of b.
func setFrameHeader(b []byte, size int, kind h2.FrameType, flags h2.Flags, id uint32) {
	appendFrameHeader(b[:0], size, kind, flags, id)
}

func appendReset(b []byte, id uint32, code h2.ErrCode) []byte {
	b = appendFrameHeader(b, 4, h2.FrameRSTStream, 0, id)
	return binary.BigEndian.AppendUint32(b, uint32(code))
}

func appendWindowUpdate(b []byte, id, increment uint32) []byte {
	b = appendFrameHeader(b, 4, h2.FrameWindowUpdate, 0, id)
	return binary.BigEndian.AppendUint32(b, increment)
}

func appendPing(b []byte, flags h2.Flags, data []byte) []byte {
	b = appendFrameHeader(b, len(data), h2.FramePing, flags, 0)
	return append(b, data...)
}

// appendGoAway says that we close. A server opens no streams towards us, so
// the last one that we took is always 0.
func appendGoAway(b []byte, code h2.ErrCode, text string) []byte {
	b = appendFrameHeader(b, 8+len(text), h2.FrameGoAway, 0, 0)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(code))
	return append(b, text...)
}

func appendSetting(b []byte, id h2.SettingID, value uint32) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(id))
	return binary.BigEndian.AppendUint32(b, value)
}
