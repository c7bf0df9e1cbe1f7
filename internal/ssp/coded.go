package ssp

import (
	"bytes"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"

	"adbuffer/internal/syntax"
)

// maxCodedScan bounds the size of a compressed body that is decoded. A larger body counts as an ad.
// A document without an ad takes 50 to 500 bytes.
//
// It also bounds the cost of a hostile body. The worst case is not a large output, which maxScan
// bounds. It is tables: 10 bytes of deflate make the decoder build some, in 1.5 µs. With 2 KB, that
// costs no more than the longest search in 64 KB.
const maxCodedScan = 2 << 10

// searchCoded reports whether a body with a content coding holds an ad, and the reason if it holds
// none. Only gzip is decoded (RFC 9110, section 8.4.1.3). A body with another coding counts as an ad,
// and so does one that cannot be decoded completely within the bounds.
func (n NoBidBody) searchCoded(coding, body []byte) (bool, noBidReason) {
	if len(body) > maxCodedScan || !syntax.EqualFold(coding, "gzip") && !syntax.EqualFold(coding, "x-gzip") {
		return true, nbrNone
	}
	g := gunzippers.Get().(*gunzipper)
	defer gunzippers.Put(g)
	document, whole := g.decode(body)
	if !whole {
		return true, nbrNone
	}
	return n.search(document)
}

// gunzipper decodes bodies. It is reused.
type gunzipper struct {
	coded   bytes.Reader
	reader  gzip.Reader
	limited io.LimitedReader // reader, up to one byte more than the search limit
	decoded bytes.Buffer
}

var gunzippers = sync.Pool{New: func() any { return new(gunzipper) }}

// decode returns the decoded body until the next call. whole reports that decode found no error.
func (g *gunzipper) decode(body []byte) (document []byte, whole bool) {
	g.coded.Reset(body)
	defer g.coded.Reset(nil)
	if g.reader.Reset(&g.coded) != nil {
		return nil, false
	}
	g.limited = io.LimitedReader{R: &g.reader, N: maxScan + 1}
	g.decoded.Reset()
	_, err := g.decoded.ReadFrom(&g.limited)
	return g.decoded.Bytes(), err == nil
}
