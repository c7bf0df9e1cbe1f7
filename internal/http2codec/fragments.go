package http2codec

import h2 "golang.org/x/net/http2"

// Fragments collects a header block that arrives in more than one frame: HEADERS, then CONTINUATION
// frames until one has END_HEADERS. RFC 9113, section 6.10.
type Fragments struct {
	ID    uint32 // stream; 0 between blocks
	Limit int    // of the block's bytes

	last   bool // HEADERS had END_STREAM
	block  []byte
	frames int // CONTINUATION frames so far
}

// MaxContinuations bounds the frames of a header block. They may be empty, so a bound in bytes is
// not enough.
const MaxContinuations = 64

// HeadersPayload returns the part of a block in a HEADERS frame, without padding and priority. RFC
// 9113, section 6.2. dependency is the stream on which its stream depends, 0 for none.
func HeadersPayload(f Frame) (block []byte, dependency uint32, err *Error) {
	p, ok := Unpad(f)
	if !ok {
		return nil, 0, ProtocolError("HEADERS with more padding than content")
	}
	if f.Flags.Has(h2.FlagHeadersPriority) {
		if len(p) < 5 {
			return nil, 0, FrameSizeError("HEADERS of a wrong size")
		}
		dependency = uint32(p[0]&0x7f)<<24 | uint32(p[1])<<16 | uint32(p[2])<<8 | uint32(p[3])
		p = p[5:]
	}
	return p, dependency, nil
}

// Begin takes the first part of a block, from the HEADERS frame f.
func (p *Fragments) Begin(f Frame, block []byte) {
	p.ID, p.last, p.frames = f.ID, f.Flags.Has(h2.FlagHeadersEndStream), 0
	p.block = append(p.block[:0], block...)
}

// Continue takes a CONTINUATION frame. whole says that the block is complete; it is valid until the
// next frame. last says that its HEADERS had END_STREAM.
func (p *Fragments) Continue(f Frame) (block []byte, last, whole bool, err *Error) {
	if p.ID == 0 {
		return nil, false, false, ProtocolError("CONTINUATION without HEADERS")
	}
	p.frames++
	if p.frames > MaxContinuations || len(p.block)+len(f.Payload) > p.Limit {
		return nil, false, false, FloodError("a header block that does not end")
	}
	p.block = append(p.block, f.Payload...)
	if !f.Flags.Has(h2.FlagContinuationEndHeaders) {
		return nil, false, false, nil
	}
	p.ID, block = 0, p.block
	if cap(p.block) > 2*MaxFrameSize {
		p.block = nil
	}
	return block, p.last, true, nil
}

// Between returns an error for a frame that is not allowed within a header block.
func (p *Fragments) Between(f Frame) *Error {
	if p.ID != 0 && (f.Kind != h2.FrameContinuation || f.ID != p.ID) {
		return ProtocolError("a frame in the middle of a header block")
	}
	return nil
}

// Free releases the memory between blocks.
func (p *Fragments) Free() {
	if p.ID == 0 {
		p.block = nil
	}
}

// Held returns how many bytes of a block are held.
func (p *Fragments) Held() int { return len(p.block) }
