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

// Gunzipper decodes bodies with a content coding: gzip (RFC 9110, section 8.4.1.3). It is reused: a decoder has
// tables of some 40 kilobytes.
//
// A decoder's work follows the coded bytes too, and not only the decoded ones: 256 KiB of empty blocks decode to
// nothing in 28 ms. So the coded bytes may be at most twice the decoded ones and 4 KiB (freeCoded) at each point.
// Ordinary data keeps that: within a block, the longest code of a byte has 15 bits.
//
// That is no bound on a body of blocks with Huffman tables of their own: 256 KiB of them take 64 ms. So the work on
// a body of more than freeCoded bytes is done in turns of package cpushare.
type Gunzipper struct {
	// Resources are set before Decode. Release clears them.
	Resources

	body     []byte
	read     int          // bytes of body that the decoder has got
	part     int          // bytes of body that it may get, whatever they decode to
	withheld bool         // it has asked for more
	coded    bufio.Reader // of g; the decoder has a fast path for this type
	reader   gzip.Reader
	decoded  []byte
	room     int // bytes of decoded that Budget counts
	turn     cpushare.Turn
	until    time.Time // when turn ends; zero without a turn
	lacking  error     // ErrNoTurn or ErrNoMemory
}

// Resources are what decoding uses. Its zero value has no bounds.
type Resources struct {
	Budget *exchange.Budget // of decoded bytes, until Release
	// CPU has the turns, Party takes them, and Deadline is until when it waits for them.
	CPU      *cpushare.Share
	Party    cpushare.Party
	Deadline time.Time
}

const (
	// freeCoded is how many coded bytes a decoder may read beyond twice the decoded bytes, and before its
	// first turn.
	freeCoded = 4 << 10
	// freeDecoded is how many bytes a decoder may produce before its first turn, in 0.2 ms.
	freeDecoded = 256 << 10
	// turnTime is how long a turn takes, about as long as a handshake.
	turnTime = time.Millisecond
	// firstRoom is the room for decoded bytes at the start.
	firstRoom = 4 << 10
)

// Errors of Gunzipper.Decode.
var (
	// ErrGzip means that a body is no gzip, is cut, or has a wrong checksum.
	ErrGzip = errors.New("its gzip is malformed")
	// ErrSparse means that a body decodes to too little.
	ErrSparse = errors.New("its gzip decodes to less than half of its bytes, beyond 4 KiB")
	// ErrNoTurn means that the deadline came before all turns had come.
	ErrNoTurn = errors.New("adbuffer has too little CPU: a gzip body waited for its turn to be decoded; see server.background_cpu")
	// ErrNoMemory means that the decoded bytes do not fit into the budget.
	ErrNoMemory = errors.New("the decoded body does not fit into the budget")
)

var gunzippers = sync.Pool{New: func() any { return new(Gunzipper) }}

// maxKeptDecoded is how much memory for a decoded body a Gunzipper keeps.
const maxKeptDecoded = 128 << 10

// IsGzip reports whether a content coding is gzip. RFC 9110, section 8.4.1.3.
func IsGzip(coding []byte) bool {
	return syntax.EqualFold(coding, "gzip") || syntax.EqualFold(coding, "x-gzip")
}

// AcquireGunzipper returns a Gunzipper.
func AcquireGunzipper() *Gunzipper { return gunzippers.Get().(*Gunzipper) }

// Release gives g and the decoded body back.
func (g *Gunzipper) Release() {
	g.Budget.Release(int64(g.room))
	g.body, g.room, g.Resources = nil, 0, Resources{}
	if cap(g.decoded) > maxKeptDecoded {
		g.decoded = nil
	}
	gunzippers.Put(g)
}

// Decode returns the decoded body, up to one byte more than limit, until the next call or Release. With an error,
// document is what was decoded before it.
//
// The decoder shows what it decoded only when its window of 32 KiB is full or its input ends. So Decode ends the input
// where what it saw does not allow for more, and begins again with a longer part of the body if there was enough in
// the window. A body of up to freeCoded bytes is decoded once; any other has at most a third of extra work, and 20 KiB
// of it if it decodes to as many bytes as it has, since the window then holds a small part of what was decoded.
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

// decode decodes the body from its start, up to one byte more than limit.
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

// takeTurn takes a turn, unless g has one that goes on.
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

// codedReader reads the body of a Gunzipper as far as its decoder may read.
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
