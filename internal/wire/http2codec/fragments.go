package http2codec

import (
	"encoding/binary"
	"fmt"

	h2 "golang.org/x/net/http2"
)

// Fragments collects a header block that arrives in more than one frame: HEADERS, then CONTINUATION
// frames until one has END_HEADERS. RFC 9113, section 6.10.
type Fragments struct {
	ID    uint32 // stream; 0 between blocks
	Limit int    // the largest size of a block in several frames, in bytes; a single frame has its own limit

	last   bool // HEADERS had END_STREAM
	block  []byte
	frames int // CONTINUATION frames so far
}

// MaxContinuations bounds the CONTINUATION frames of a header block. Such frames may be empty, so a bound on bytes is
// not enough.
const MaxContinuations = 64

// HeaderBlock is a complete header block. Its bytes are valid until the next frame.
type HeaderBlock struct {
	Bytes []byte
	Last  bool // HEADERS had END_STREAM
	// DependsOn is the stream on which the block's stream depends, 0 for none. It is also 0 for a
	// block of several frames.
	DependsOn uint32
}

// Take takes a HEADERS or CONTINUATION frame that check permits. whole reports whether it completes a block.
func (p *Fragments) Take(f Frame) (block HeaderBlock, whole bool, err *Error) {
	if f.Kind == h2.FrameContinuation {
		return p.continued(f)
	}
	payload, dependsOn, err := headersPayload(f)
	if err != nil {
		return HeaderBlock{}, false, err
	}
	last := f.Flags.Has(h2.FlagHeadersEndStream)
	if f.Flags.Has(h2.FlagHeadersEndHeaders) {
		return HeaderBlock{payload, last, dependsOn}, true, nil
	}
	p.ID, p.last, p.frames = f.ID, last, 0
	p.block = append(p.block[:0], payload...)
	return HeaderBlock{}, false, nil
}

// headersPayload returns the part of a block in a HEADERS frame, without padding and priority. RFC
// 9113, section 6.2. dependsOn is the stream on which its stream depends, 0 for none.
func headersPayload(f Frame) (block []byte, dependsOn uint32, err *Error) {
	p, ok := Unpad(f)
	if !ok {
		return nil, 0, ProtocolError("HEADERS with more padding than content")
	}
	if f.Flags.Has(h2.FlagHeadersPriority) {
		if len(p) < 5 {
			return nil, 0, FrameSizeError("HEADERS of a wrong size")
		}
		dependsOn = binary.BigEndian.Uint32(p) & MaxStreamID
		p = p[5:]
	}
	return p, dependsOn, nil
}

func (p *Fragments) continued(f Frame) (block HeaderBlock, whole bool, err *Error) {
	if p.ID == 0 {
		return HeaderBlock{}, false, ProtocolError("CONTINUATION without HEADERS")
	}
	p.frames++
	if p.frames > MaxContinuations || len(p.block)+len(f.Payload) > p.Limit {
		return HeaderBlock{}, false, FloodError(fmt.Sprintf("a header block over %d bytes or %d CONTINUATION frames", p.Limit, MaxContinuations))
	}
	p.block = append(p.block, f.Payload...)
	if !f.Flags.Has(h2.FlagContinuationEndHeaders) {
		return HeaderBlock{}, false, nil
	}
	p.ID = 0
	block = HeaderBlock{Bytes: p.block, Last: p.last}
	if cap(p.block) > 2*MaxFrameSize {
		p.block = nil
	}
	return block, true, nil
}

// check returns how f violates the protocol: because it interrupts a header block, or by its own content. It returns nil
// if f is permitted.
func (p *Fragments) check(f Frame) *Error {
	if p.ID != 0 && (f.Kind != h2.FrameContinuation || f.ID != p.ID) {
		return ProtocolError("a frame in the middle of a header block")
	}
	return f.check()
}

// Free releases the memory between blocks.
func (p *Fragments) Free() {
	if p.ID == 0 {
		p.block = nil
	}
}
