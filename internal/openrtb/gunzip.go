package openrtb

import (
	"bytes"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"

	"adbuffer/internal/syntax"
)

// Gunzipper decodes gzip bodies (RFC 9110, section 8.4.1.3). It is reused: a decoder has tables of some
// 40 kilobytes.
type Gunzipper struct {
	coded   bytes.Reader
	reader  gzip.Reader
	limited io.LimitedReader // reader, up to one byte more than the limit
	decoded bytes.Buffer
}

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
	if g.decoded.Cap() > maxKeptDecoded {
		g.decoded = bytes.Buffer{}
	}
	gunzippers.Put(g)
}

// Decode returns the decoded body, up to one byte more than limit, until the next call or Release. whole
// reports that it found no error up to there.
func (g *Gunzipper) Decode(body []byte, limit int) (document []byte, whole bool) {
	g.coded.Reset(body)
	defer g.coded.Reset(nil)
	if g.reader.Reset(&g.coded) != nil {
		return nil, false
	}
	g.limited = io.LimitedReader{R: &g.reader, N: int64(limit) + 1}
	g.decoded.Reset()
	_, err := g.decoded.ReadFrom(&g.limited)
	return g.decoded.Bytes(), err == nil
}
