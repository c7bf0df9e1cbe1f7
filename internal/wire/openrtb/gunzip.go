package openrtb

import (
	"bufio"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/syntax"
)

// Gunzipper decodes bodies with the content coding gzip (RFC 9110, section 8.4.1.3). Gunzippers are reused, since a
// decoder has tables of about 40 kilobytes.
//
// The work of a decoder grows with the coded bytes, and not only with the decoded bytes: 256 KiB of empty blocks, which
// decode to nothing, take 28 ms. So at every point, a Gunzipper reads at most twice as many coded bytes as it has
// decoded, plus 4 KiB (freeCoded). Ordinary data stays within this bound, since the longest code of a byte within a
// block has 15 bits.
//
// This does not bound the work on a body whose blocks have Huffman tables of their own: 256 KiB of such blocks take
// 64 ms. So the work on a body of more than freeCoded bytes is done in turns of package cpushare.
type Gunzipper struct {
	// Resources are set before Decode. Release clears them.
	Resources

	body     []byte
	read     int          // how many bytes of body the decoder has read
	part     int          // how many bytes of body the decoder may read, whatever they decode to
	withheld bool         // the decoder has asked for more bytes than it may read
	coded    bufio.Reader // reads from codedReader; the decoder has a fast path for this type
	reader   gzip.Reader
	decoded  []byte
	room     int // how many bytes Budget counts for decoded
	turn     cpushare.Turn
	until    time.Time // when turn ends; zero without a turn
	lacking  error     // ErrNoTurn or ErrNoMemory; nil = no resource is lacking
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
	// freeDecoded is how many bytes a decoder may produce before its first turn, which takes 0.2 ms.
	freeDecoded = 256 << 10
	// turnTime is how long a turn lasts: about as long as a TLS handshake.
	turnTime = time.Millisecond
	// firstRoom is how many bytes are reserved for decoded bytes at the start.
	firstRoom = 4 << 10
)

// Errors of Gunzipper.Decode.
var (
	// ErrGzip means that a body is not gzip, is truncated, or has a wrong checksum.
	ErrGzip = errors.New("its gzip is malformed")
	// ErrSparse means that a body decodes to too few bytes for its length.
	ErrSparse = errors.New("its gzip decodes to less than half of its bytes, beyond 4 KiB")
	// ErrNoTurn means that the deadline passed before decoding got all the turns that it needed.
	ErrNoTurn = errors.New("adbuffer has too little CPU: a gzip body waited for its turn to be decoded; see server.background_cpu")
	// ErrNoMemory means that the decoded bytes do not fit into the budget.
	ErrNoMemory = errors.New("the decoded body does not fit into the budget")
)

var gunzippers = sync.Pool{New: func() any { return new(Gunzipper) }}

// maxKeptDecoded bounds the memory for a decoded body that a Gunzipper keeps for the next body.
const maxKeptDecoded = 128 << 10

// IsGzip reports whether a content coding is gzip. RFC 9110, section 8.4.1.3.
func IsGzip(coding []byte) bool {
	return syntax.EqualFold(coding, "gzip") || syntax.EqualFold(coding, "x-gzip")
}

// AcquireGunzipper returns a Gunzipper.
func AcquireGunzipper() *Gunzipper { return gunzippers.Get().(*Gunzipper) }

// Release gives g back, with the memory of the decoded body.
func (g *Gunzipper) Release() {
	g.Budget.Release(int64(g.room))
	g.body, g.room, g.Resources = nil, 0, Resources{}
	if cap(g.decoded) > maxKeptDecoded {
		g.decoded = nil
	}
	gunzippers.Put(g)
}

// Decode returns the decoded body, but at most limit+1 bytes of it. The result is valid until the next call or Release.
// After an error, document is what was decoded before the error.
//
// The decoder returns decoded bytes only when its window of 32 KiB is full or its input ends. So Decode ends the input
// at the point up to which the bytes decoded so far allow reading. If the window then turns out to hold enough bytes,
// Decode starts again with a longer part of the body. A body of up to freeCoded bytes is decoded once. For a longer
// body, decoding again costs at most a third of the work; it costs the work of only 20 KiB if the body decodes to at
// least as many bytes as it has, since the window then holds a small part of the decoded bytes.
func (g *Gunzipper) Decode(body []byte, limit int) (document []byte, err error) {
	g.body, g.part, g.lacking = body, freeCoded, nil
	defer g.endTurn()
	for {
		err = g.decode(limit)
		document = g.decoded
		allowed := 2*len(document) + freeCoded
		switch {
		case g.lacking != nil:
			return document, g.lacking
		case len(document) > limit:
			return document, nil
		case g.withheld && g.read < allowed:
			g.part = max(allowed, 4*g.read)
		case g.withheld || err == nil && len(body) > allowed:
			return document, ErrSparse
		case err != nil:
			return document, ErrGzip
		default:
			return document, nil
		}
	}
}

// decode decodes the body from its start, up to limit+1 bytes.
func (g *Gunzipper) decode(limit int) error {
	g.read, g.withheld = 0, false
	g.coded.Reset((*codedReader)(g))
	g.decoded = g.decoded[:0]
	if err := g.reader.Reset(&g.coded); err != nil {
		return err
	}
	for len(g.decoded) <= limit {
		if len(g.decoded) == g.room {
			if err := g.grow(limit + 1); err != nil {
				return err
			}
		}
		if len(g.decoded) >= freeDecoded {
			if err := g.takeTurn(); err != nil {
				return err
			}
		}
		n, err := g.reader.Read(g.decoded[len(g.decoded):min(g.room, limit+1)])
		g.decoded = g.decoded[:len(g.decoded)+n]
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
func (g *Gunzipper) grow(limit int) error {
	room := min(max(firstRoom, 2*g.room), limit)
	if !g.Budget.Reserve(int64(room - g.room)) {
		g.lacking = ErrNoMemory
		return g.lacking
	}
	g.room = room
	if cap(g.decoded) < room {
		g.decoded = append(make([]byte, 0, room), g.decoded...)
	}
	return nil
}

// takeTurn waits for a turn, unless the current turn has not ended yet.
func (g *Gunzipper) takeTurn() error {
	if g.CPU == nil || g.lacking != nil {
		return g.lacking
	}
	if !g.until.IsZero() && time.Now().Before(g.until) {
		return nil
	}
	g.endTurn()
	turn, err := g.CPU.Acquire(cpushare.Decode, g.Party, g.Deadline)
	if err != nil {
		g.lacking = ErrNoTurn
		return g.lacking
	}
	g.turn, g.until = turn, time.Now().Add(turnTime)
	return nil
}

func (g *Gunzipper) endTurn() {
	g.turn.Release()
	g.until = time.Time{}
}

// codedReader reads the body of a Gunzipper, but only as far as the decoder may read.
type codedReader Gunzipper

func (r *codedReader) Read(p []byte) (int, error) {
	allowed := max(r.part, 2*len(r.decoded)+freeCoded)
	n := copy(p, r.body[r.read:max(r.read, min(allowed, len(r.body)))])
	if n == 0 {
		r.withheld = r.read < len(r.body)
		return 0, io.EOF
	}
	if r.read+n > freeCoded || r.part > freeCoded {
		if err := (*Gunzipper)(r).takeTurn(); err != nil {
			return 0, err
		}
	}
	r.read += n
	return n, nil
}
