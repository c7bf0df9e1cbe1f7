package ssp

import "adbuffer/internal/openrtb"

// maxCodedScan bounds the size of a compressed body that is decoded. A larger body counts as an ad.
// A document without an ad takes 50 to 500 bytes.
//
// It also bounds the cost of a hostile body. The worst case is not a large output, which maxScan
// bounds. It is tables: 10 bytes of deflate make the decoder build some, in 1.5 µs. With 2 KB, that
// costs no more than the longest search in 64 KB.
const maxCodedScan = 2 << 10

// searchCoded reports whether a body with a content coding holds an ad, and the reason if it holds
// none. Only gzip is decoded. A body with another coding counts as an ad,
// and so does one that cannot be decoded completely within the bounds.
func (n NoBidBody) searchCoded(coding, body []byte) (bool, noBidReason) {
	if len(body) > maxCodedScan || !openrtb.IsGzip(coding) {
		return true, nbrNone
	}
	g := openrtb.AcquireGunzipper()
	defer g.Release()
	document, whole := g.Decode(body, maxScan)
	if !whole {
		return true, nbrNone
	}
	return n.search(document)
}
