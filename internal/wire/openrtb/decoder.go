package openrtb

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/syntax"
)

// Decoder decodes bodies with the content coding gzip (RFC 9110, section 8.4.1.3) or zstd (RFC 8878, RFC 9659).
// Decoders are reused, since they have tables of tens of kilobytes.
//
// The work of a decoder grows with the coded bytes, and not only with the decoded bytes: 256 KiB of empty blocks of
// gzip, which decode to nothing, take 28 ms. So a Decoder rejects a body of which it has read more than twice as many
// bytes as it has decoded, plus 4 KiB (freeCoded). It notices that at the end of a block of zstd, which has at most 128
// KiB; the decoder of gzip withholds decoded bytes, so it may have read four times as many bytes by then (see Decode).
// Ordinary data stays within this bound, since the longest code of a byte within a block of gzip has 15 bits, and within
// a block of zstd 11.
//
// This does not bound the work on a body whose blocks have tables of their own: 256 KiB of such blocks take 64 ms in
// gzip. So decoding takes turns of package cpushare once it has read freeCoded bytes or has decoded freeDecoded bytes.
type Decoder struct {
	// Resources are set before Decode. Release clears them.
	Resources

	body      []byte
	read      int          // how many bytes of body the decoder has read
	allowance int          // how many bytes of body the decoder may read, whatever they decode to
	withheld  bool         // the decoder has asked for more bytes than it may read
	coded     bufio.Reader // reads from codedReader; the decoder of gzip has a fast path for this type
	gzip      gzip.Reader
	zstd      bool   // the body's coding is zstd, and not gzip
	frames    frames // decodes zstd
	decoded   []byte
	reserved  int // how many bytes Budget counts for decoded
	turn      cpushare.Turn
	until     time.Time // when turn ends; zero without a turn
	lacking   error     // ErrNoTurn or ErrNoMemory; nil = no resource is lacking
}

// Resources bounds the memory and the CPU of decoding. The zero value sets no bounds.
type Resources struct {
	Budget *exchange.Budget // counts the decoded bytes until Release
	// Decoding takes its turns from CPU on behalf of Party, and waits for them until Deadline.
	CPU      *cpushare.Share
	Party    cpushare.Party
	Deadline time.Time
}

const (
	// freeCoded is how many coded bytes a decoder may read in addition to twice the decoded bytes, and also
	// how many it may read before its first turn.
	freeCoded = 4 << 10
	// freeDecoded is how many bytes a decoder may produce before its first turn. Producing them takes 0.2 ms.
	freeDecoded = 256 << 10
	// turnTime is how long a turn lasts: about as long as a TLS handshake.
	turnTime = time.Millisecond
	// firstReserved is how many bytes are reserved for decoded bytes at the start.
	firstReserved = 4 << 10
)

// Errors of Decoder.Decode.
var (
	// ErrCoding means that a body does not have its content coding, is truncated, has a wrong checksum, or needs a
	// window or dictionary that the coding does not allow.
	ErrCoding = errors.New("its content coding is malformed")
	// ErrSparse means that a body decodes to too few bytes for its length.
	ErrSparse = errors.New("its compressed form has over 4 KiB more than twice its decoded bytes")
	// ErrNoTurn means that the deadline passed before decoding got all the turns that it needed.
	ErrNoTurn = errors.New("adbuffer has too little CPU: a compressed body waited for its turn to be decoded; see server.background_cpu")
	// ErrNoMemory means that the decoded bytes do not fit into the budget.
	ErrNoMemory = errors.New("the decoded body does not fit into the budget; see server.max_buffered_bytes")
)

var decoders = sync.Pool{New: func() any { return new(Decoder) }}

// maxKeptDecoded bounds the memory for a decoded body that a Decoder keeps for the next body.
const maxKeptDecoded = 128 << 10

// CanDecode reports whether a Decoder decodes a content coding.
func CanDecode(coding []byte) bool {
	return syntax.EqualFold(coding, "gzip") || syntax.EqualFold(coding, "x-gzip") || isZstd(coding)
}

// BeginsAs reports whether body begins with a magic number of the content coding, for which CanDecode holds.
func BeginsAs(coding, body []byte) bool {
	if isZstd(coding) {
		return bytes.HasPrefix(body, zstdMagic) || len(body) >= 4 && body[0]>>4 == 5 && string(body[1:4]) == "\x2a\x4d\x18" // a skippable frame
	}
	return bytes.HasPrefix(body, gzipMagic)
}

// gzipMagic begins each body in gzip: RFC 1952, section 2.3.1.
var gzipMagic = []byte("\x1f\x8b")

// AcquireDecoder returns a Decoder, which the caller must release.
func AcquireDecoder() *Decoder { return decoders.Get().(*Decoder) }

// Release gives d back, with the memory of the decoded body.
func (d *Decoder) Release() {
	d.Budget.Release(int64(d.reserved + d.frames.ring))
	d.frames.release()
	d.body, d.reserved, d.Resources = nil, 0, Resources{}
	if cap(d.decoded) > maxKeptDecoded {
		d.decoded = nil
	}
	decoders.Put(d)
}

// Decode returns the decoded body, but at most limit+1 bytes of it. CanDecode must hold for the coding. The result is
// valid until the next call or Release. After an error, document is what was decoded before the error.
//
// The decoder of gzip returns decoded bytes only when its window of 32 KiB is full or its input ends. So Decode ends
// the input at the point up to which the bytes decoded so far allow reading. If the window then turns out to hold
// enough bytes, Decode starts again with a longer part of the body. A body of up to freeCoded bytes is decoded once.
// For a longer body, decoding again costs at most a third of the work; it costs the work of only 20 KiB if the body
// decodes to at least as many bytes as it has, since the window then holds a small part of the decoded bytes.
func (d *Decoder) Decode(coding, body []byte, limit int) (document []byte, err error) {
	d.body, d.allowance, d.lacking, d.zstd = body, freeCoded, nil, isZstd(coding)
	defer d.endTurn()
	for {
		err = d.decode(limit)
		document = d.decoded
		allowed := 2*len(document) + freeCoded
		switch {
		case d.lacking != nil:
			return document, d.lacking
		case len(document) > limit:
			return document, nil
		case d.withheld && d.read < allowed:
			d.allowance = max(allowed, 4*d.read)
		case d.withheld || err == nil && len(body) > allowed:
			return document, ErrSparse
		case err != nil:
			return document, ErrCoding
		default:
			return document, nil
		}
	}
}

// open prepares the decoding of the body from its start. One call of reader.Read may return at most maxRead bytes.
func (d *Decoder) open(limit int) (reader io.Reader, maxRead int, err error) {
	d.read, d.withheld, d.decoded = 0, false, d.decoded[:0]
	if d.zstd {
		reader, err = d.frames.open(d, limit)
		return reader, maxUncounted, err
	}
	d.coded.Reset((*codedReader)(d))
	return &d.gzip, limit + 1, d.gzip.Reset(&d.coded)
}

// decode decodes the body from its start, up to limit+1 bytes.
func (d *Decoder) decode(limit int) error {
	reader, most, err := d.open(limit)
	if err != nil {
		return err
	}
	for len(d.decoded) <= limit {
		if len(d.decoded) == d.reserved {
			if err := d.grow(limit + 1); err != nil {
				return err
			}
		}
		if len(d.decoded) >= freeDecoded {
			if err := d.takeTurn(); err != nil {
				return err
			}
		}
		n, err := reader.Read(d.decoded[len(d.decoded):min(d.reserved, limit+1, len(d.decoded)+most)])
		d.decoded = d.decoded[:len(d.decoded)+n]
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// grow doubles the room for decoded bytes, up to limit.
func (d *Decoder) grow(limit int) error {
	room := min(max(firstReserved, 2*d.reserved), limit)
	if !d.Budget.Reserve(int64(room - d.reserved)) {
		d.lacking = ErrNoMemory
		return d.lacking
	}
	d.reserved = room
	if cap(d.decoded) < room {
		d.decoded = append(make([]byte, 0, room), d.decoded...)
	}
	return nil
}

// takeTurn waits for a turn, unless the current turn has not ended yet.
func (d *Decoder) takeTurn() error {
	if d.CPU == nil || d.lacking != nil {
		return d.lacking
	}
	if !d.until.IsZero() && time.Now().Before(d.until) {
		return nil
	}
	d.endTurn()
	turn, err := d.CPU.Acquire(cpushare.Decode, d.Party, d.Deadline)
	if err != nil {
		d.lacking = ErrNoTurn
		return d.lacking
	}
	d.turn, d.until = turn, time.Now().Add(turnTime)
	return nil
}

func (d *Decoder) endTurn() {
	d.turn.Release()
	d.until = time.Time{}
}

// codedReader reads the body of a Decoder, but only as far as the decoder may read.
type codedReader Decoder

func (r *codedReader) Read(p []byte) (int, error) {
	allowed := max(r.allowance, 2*len(r.decoded)+freeCoded)
	if r.zstd && r.read < allowed {
		allowed = len(r.body) // p is a part of a block at most
	}
	n := copy(p, r.body[r.read:max(r.read, min(allowed, len(r.body)))])
	if n == 0 {
		r.withheld = r.read < len(r.body)
		return 0, io.EOF
	}
	if r.read+n > freeCoded || r.allowance > freeCoded {
		if err := (*Decoder)(r).takeTurn(); err != nil {
			return 0, err
		}
	}
	r.read += n
	return n, nil
}
