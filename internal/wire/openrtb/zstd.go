package openrtb

import (
	"bytes"
	"io"
	"math/bits"

	"github.com/klauspost/compress/zstd"

	"adbuffer/internal/wire/syntax"
)

// frames decodes the frames of a body in zstd for a Decoder.
//
// A frame states its window: how far back its blocks refer. The decoder allocates memory for the whole window, and
// even a body of a few bytes may state a window of 8 MiB. So frames gives the decoder a frame header of its own, with
// a window that is no larger than what the Decoder may decode, and counts the decoder's memory for it in
// Decoder.Budget.
type frames struct {
	d      *Decoder
	zstd   *zstd.Decoder // nil before the first use
	limit  int
	head   [6]byte
	unread []byte // what the decoder has not read of head
	ring   int    // bytes that Budget counts for the window
}

const (
	// maxWindow is the largest window that a frame may state: RFC 9659, section 3.
	maxWindow = 8 << 20
	// maxBlock is the maximum size of a block: RFC 8878, section 3.1.1.2.4.
	maxBlock = 128 << 10
	// maxKeptRing bounds the memory for a window that a decoder keeps for the next body.
	maxKeptRing = 1 << 20
	// maxUncounted is how many bytes a read may return, since a Decoder does not count bytes as decoded before the
	// end of the read. It is so small that a body of short blocks stays within the bound of freeCoded.
	maxUncounted = freeCoded / 2
)

// zstdMagic begins each frame: RFC 8878, section 3.1.1.
var zstdMagic = []byte("\x28\xb5\x2f\xfd")

func isZstd(coding []byte) bool { return syntax.EqualFold(coding, "zstd") }

// open prepares the decoding of d's body from its start.
func (f *frames) open(d *Decoder, limit int) (io.Reader, error) {
	f.d, f.limit, f.unread = d, limit, nil
	if len(d.body) == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	if f.zstd == nil {
		var err error
		f.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
		if err != nil {
			panic("BUG: " + err.Error())
		}
	}
	return f.zstd, f.zstd.Reset(f)
}

func (f *frames) release() {
	if f.ring > maxKeptRing {
		f.zstd = nil
	}
	f.ring = 0
}

// Read gives the decoder the body, but replaces the headers of frames. The decoder reads a single byte only at the
// start of a frame, and in a block that repeats one byte. If that byte and the checksum after it happen to begin with
// zstdMagic, Read takes them for a frame header, and the body counts as malformed.
func (f *frames) Read(p []byte) (int, error) {
	d := f.d
	if len(p) == 1 && len(f.unread) == 0 && bytes.HasPrefix(d.body[d.read:], zstdMagic) {
		if err := f.begin(); err != nil {
			return 0, err
		}
	}
	if len(f.unread) > 0 {
		n := copy(p, f.unread)
		f.unread = f.unread[n:]
		return n, nil
	}
	return (*codedReader)(d).Read(p)
}

// begin replaces the header of the frame that begins here.
func (f *frames) begin() error {
	var h zstd.Header
	if err := h.Decode(f.d.body[f.d.read:]); err != nil || h.DictionaryID != 0 {
		return ErrCoding // a body that ends in the header must not count as one that ends before it
	}
	stated := h.WindowSize
	if h.SingleSegment {
		stated = h.FrameContentSize
	} else if stated > maxWindow {
		return ErrCoding
	}
	descriptor, window := windowOf(min(stated, uint64(f.limit)+1+maxBlock))
	const spare = 16 // bytes that the decoder adds to each block
	if ring := window + 2*(min(window, maxBlock)+spare); ring > f.ring {
		if !f.d.Budget.Reserve(int64(ring - f.ring)) {
			f.d.lacking = ErrNoMemory
			return f.d.lacking
		}
		f.ring = ring
	}
	flags := byte(0)
	if h.HasCheckSum {
		flags = 1 << 2
	}
	f.head = [6]byte{zstdMagic[0], zstdMagic[1], zstdMagic[2], zstdMagic[3], flags, descriptor}
	f.unread = f.head[:]
	f.d.read += h.HeaderSize
	return nil
}

// windowOf returns the smallest window of at least n bytes that a frame can state, and its descriptor: RFC 8878,
// section 3.1.1.1.2.
func windowOf(n uint64) (descriptor byte, window int) {
	const least = 10 // the smallest window has 1<<least bytes
	base := max(least, bits.Len64(n)-1)
	eighths := (int(n-min(n, 1<<base)) + 1<<(base-3) - 1) >> (base - 3)
	if eighths == 8 {
		base, eighths = base+1, 0
	}
	return byte((base-least)<<3 | eighths), 1<<base + eighths<<(base-3)
}
