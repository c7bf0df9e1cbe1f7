package http2codec

import (
	"bytes"
	"encoding/binary"
	"fmt"

	h2 "golang.org/x/net/http2"
)

const (
	FrameHeaderLen = 9
	// MaxFrameSize is the largest payload that adbuffer accepts, and the largest that every peer
	// accepts: the initial SETTINGS_MAX_FRAME_SIZE. RFC 9113, section 4.2.
	MaxFrameSize = 1 << 14
	// MaxStreamID and MaxWindow are the largest numbers of 31 bits.
	MaxStreamID = 1<<31 - 1
	MaxWindow   = 1<<31 - 1
	// InitialWindow is the size of a window before any SETTINGS frame.
	// RFC 9113, section 6.9.2.
	InitialWindow = 65535
)

// Frame is one received frame. Its payload is a part of the read buffer and is valid until the next
// read.
type Frame struct {
	Kind    h2.FrameType
	Flags   h2.Flags
	ID      uint32 // stream; 0 is the connection
	Payload []byte
}

// ParseFrame reads the frame at the start of b. n is the frame's length, or 0 if b does not hold the whole frame.
// size is the length of its payload, or 0 while it is unknown.
func ParseFrame(b []byte) (f Frame, n, size int) {
	if len(b) < FrameHeaderLen {
		return Frame{}, 0, 0
	}
	size = int(b[0])<<16 | int(b[1])<<8 | int(b[2])
	if len(b) < FrameHeaderLen+size {
		return Frame{}, 0, size
	}
	return Frame{
		Kind:    h2.FrameType(b[3]),
		Flags:   h2.Flags(b[4]),
		ID:      binary.BigEndian.Uint32(b[5:]) & MaxStreamID,
		Payload: b[FrameHeaderLen : FrameHeaderLen+size],
	}, FrameHeaderLen + size, size
}

// check returns the violation of a frame that is not allowed on its stream, or that has a wrong
// size. RFC 9113, section 6. ParseSettings checks the size of SETTINGS. A wrong size of PRIORITY
// ends its stream, not the connection.
func (f Frame) check() *Error {
	switch f.Kind {
	case h2.FrameData, h2.FrameHeaders, h2.FramePriority, h2.FrameRSTStream:
		if f.ID == 0 {
			return ProtocolError(f.Kind.String() + " on no stream")
		}
	case h2.FrameSettings, h2.FramePing, h2.FrameGoAway:
		if f.ID != 0 {
			return ProtocolError(f.Kind.String() + " on a stream")
		}
	}
	ok, n := true, len(f.Payload)
	switch f.Kind {
	case h2.FrameRSTStream, h2.FrameWindowUpdate:
		ok = n == 4
	case h2.FrameSettings:
		ok = n == 0 || !f.Flags.Has(h2.FlagSettingsAck)
	case h2.FramePing:
		ok = n == 8
	case h2.FrameGoAway:
		ok = n >= 8
	}
	if !ok {
		return FrameSizeError(f.Kind.String() + " of a wrong size")
	}
	return nil
}

// Unpad removes the padding from the payload of a DATA or HEADERS frame. ok is false if the padding
// is longer than the payload. RFC 9113, section 6.1.
func Unpad(f Frame) (payload []byte, ok bool) {
	p := f.Payload
	if !f.Flags.Has(h2.FlagDataPadded) {
		return p, true
	}
	if len(p) == 0 || int(p[0]) >= len(p) {
		return nil, false
	}
	return p[1 : len(p)-int(p[0])], true
}

// AppendFrameHeader appends the header of a frame whose payload has size bytes, on stream id, 0 for the connection.
func AppendFrameHeader(b []byte, size int, kind h2.FrameType, flags h2.Flags, id uint32) []byte {
	return append(b, byte(size>>16), byte(size>>8), byte(size), byte(kind), byte(flags),
		byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
}

// AppendReset appends an RST_STREAM.
func AppendReset(b []byte, id uint32, code h2.ErrCode) []byte {
	b = AppendFrameHeader(b, 4, h2.FrameRSTStream, 0, id)
	return binary.BigEndian.AppendUint32(b, uint32(code))
}

// AppendWindowUpdate appends a WINDOW_UPDATE for stream id, 0 for the connection.
func AppendWindowUpdate(b []byte, id, increment uint32) []byte {
	b = AppendFrameHeader(b, 4, h2.FrameWindowUpdate, 0, id)
	return binary.BigEndian.AppendUint32(b, increment)
}

// AppendPing appends a PING. data has 8 bytes.
func AppendPing(b []byte, flags h2.Flags, data []byte) []byte {
	b = AppendFrameHeader(b, len(data), h2.FramePing, flags, 0)
	return append(b, data...)
}

// AppendGoAway appends a GOAWAY: adbuffer closes the connection, and did not and will not process
// any stream above last. RFC 9113, section 6.8.
func AppendGoAway(b []byte, last uint32, code h2.ErrCode, text string) []byte {
	b = AppendFrameHeader(b, 8+len(text), h2.FrameGoAway, 0, 0)
	b = binary.BigEndian.AppendUint32(b, last)
	b = binary.BigEndian.AppendUint32(b, uint32(code))
	return append(b, text...)
}

// AppendSetting appends one setting of a SETTINGS frame.
func AppendSetting(b []byte, id h2.SettingID, value uint32) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(id))
	return binary.BigEndian.AppendUint32(b, value)
}

// EndHeaders turns a header block into a HEADERS frame. The block must stand at the end of b, from start on, after
// FrameHeaderLen bytes of space for the frame's header. A block longer than limit continues in CONTINUATION frames.
// RFC 9113, section 6.10.
func EndHeaders(b []byte, start, limit int, flags h2.Flags, id uint32) []byte {
	size := len(b) - start - FrameHeaderLen
	if size <= limit {
		AppendFrameHeader(b[:start], size, h2.FrameHeaders, flags|h2.FlagHeadersEndHeaders, id)
		return b
	}
	block := bytes.Clone(b[start+FrameHeaderLen:])
	b = b[:start]
	kind := h2.FrameHeaders
	for len(block) > 0 {
		n := min(len(block), limit)
		if n == len(block) {
			flags |= h2.FlagHeadersEndHeaders
		}
		b = AppendFrameHeader(b, n, kind, flags, id)
		b = append(b, block[:n]...)
		block, kind, flags = block[n:], h2.FrameContinuation, 0
	}
	return b
}

// Error is a violation by the peer that ends the connection. RFC 9113, section 5.4.1.
type Error struct {
	Code h2.ErrCode
	Text string // the violated rule, for people; it is also sent to the peer
}

func (e *Error) Error() string { return fmt.Sprintf("HTTP/2 %v: %s", e.Code, e.Text) }

func ProtocolError(text string) *Error    { return &Error{h2.ErrCodeProtocol, text} }
func FrameSizeError(text string) *Error   { return &Error{h2.ErrCodeFrameSize, text} }
func FlowError(text string) *Error        { return &Error{h2.ErrCodeFlowControl, text} }
func FloodError(text string) *Error       { return &Error{h2.ErrCodeEnhanceYourCalm, text} }
func compressionError(text string) *Error { return &Error{h2.ErrCodeCompression, text} }
