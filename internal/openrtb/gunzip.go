package openrtb

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"

	"adbuffer/internal/syntax"
)

// Gunzipper decodes bodies with a content coding: gzip (RFC 9110, section 8.4.1.3). It is reused: a decoder has
// tables of some 40 kilobytes.
//
// A decoder's work follows the coded bytes too, and not only the decoded ones: 256 KiB of empty blocks decode to
// nothing in 28 ms. So the coded bytes may be at most twice the decoded ones and 4 KiB (freeCoded) at each point.
// Ordinary data keeps that: within a block, the longest code of a byte has 15 bits.
type Gunzipper struct {
	body     []byte
	read     int          // bytes of body that the decoder has got
	part     int          // bytes of body that it may get, whatever they decode to
	withheld bool         // it has asked for more
	coded    bufio.Reader // of g; the decoder has a fast path for this type
	reader   gzip.Reader
	limited  io.LimitedReader // reader, up to one byte more than the limit
	decoded  bytes.Buffer
}

// freeCoded is how many coded bytes a decoder may read beyond twice the decoded bytes.
const freeCoded = 4 << 10

// Errors of Gunzipper.Decode.
var (
	// ErrGzip means that a body is no gzip, is cut, or has a wrong checksum.
	ErrGzip = errors.New("its gzip is malformed")
	// ErrSparse means that a body decodes to too little.
	ErrSparse = errors.New("its gzip decodes to less than half of its bytes, beyond 4 KiB")
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
	g.body = nil
	if g.decoded.Cap() > maxKeptDecoded {
		g.decoded = bytes.Buffer{}
	}
	gunzippers.Put(g)
}

// Decode returns the decoded body, up to one byte more than limit, until the next call or Release. err is nil,
// ErrGzip or ErrSparse; with an error, document is what was decoded before it.
//
// The decoder shows what it decoded only when its window of 32 KiB is full or its input ends. So Decode ends the input
// where what it saw does not allow for more, and begins again with a longer part of the body if there was enough in
// the window. A body of up to freeCoded bytes is decoded once; any other has at most a third of extra work, and 20 KiB
// of it if it decodes to as many bytes as it has, since the window then holds a small part of what was decoded.
func (g *Gunzipper) Decode(body []byte, limit int) (document []byte, err error) {
	g.body, g.part = body, freeCoded
	for {
		err = g.decode(limit)
		document = g.decoded.Bytes()
		allowed := 2*len(document) + freeCoded
		switch {
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
	g.decoded.Reset()
	if err := g.reader.Reset(&g.coded); err != nil {
		return err
	}
	g.limited = io.LimitedReader{R: &g.reader, N: int64(limit) + 1}
	_, err := g.decoded.ReadFrom(&g.limited)
	return err
}

// codedReader reads the body of a Gunzipper as far as its decoder may read.
type codedReader Gunzipper

func (r *codedReader) Read(p []byte) (int, error) {
	allowed := max(r.part, 2*r.decoded.Len()+freeCoded)
	n := copy(p, r.body[r.read:max(r.read, min(allowed, len(r.body)))])
	r.read += n
	if n == 0 {
		r.withheld = r.read < len(r.body)
		return 0, io.EOF
	}
	return n, nil
}
