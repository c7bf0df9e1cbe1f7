package ssp

import (
	"bytes"
	"strings"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/openrtb"
	"adbuffer/internal/wire/syntax"
)

// NoBidBody says how a body distinguishes a no-bid from a fill.
type NoBidBody string

// The values of `no_bid_body`. With another one, such as "none", any body is a fill.
const (
	NoBidVAST    NoBidBody = "vast"    // a document without the element Ad is no bid
	NoBidOpenRTB NoBidBody = "openrtb" // a document without a bid is no bid
)

// maxScan bounds the size of a body that is searched for an ad. A larger body counts as an ad.
const maxScan = 64 << 10

// classify returns the outcome of a response, and counts the response.
func (s *SSP) classify(r *Request, res *exchange.Response) exchange.Outcome {
	s.stats.codes.add(res.Status)
	o, why := s.outcomeOf(r, res)
	if o == exchange.NoBid && s.opts.NoBidBody == NoBidOpenRTB {
		s.stats.noBids[why].Add(1)
	}
	return o
}

// outcomeOf returns the outcome of a response, and the SSP's reason for a no-bid if it gives one.
func (s *SSP) outcomeOf(r *Request, res *exchange.Response) (exchange.Outcome, noBidReason) {
	switch {
	case res.Status >= 500:
		return exchange.ServerError, nbrNone
	case res.Status >= 400:
		return exchange.ClientError, nbrNone
	case res.Status >= 300:
		return exchange.Redirect, nbrNone
	case res.Status == 204, r.Method != exchange.HEAD && len(res.Body) == 0:
		return exchange.NoBid, nbrNone
	case r.Method == exchange.HEAD, s.opts.NoBidBody != NoBidVAST && s.opts.NoBidBody != NoBidOpenRTB:
		return exchange.Fill, nbrNone
	}
	filled, why := s.opts.NoBidBody.filled(res)
	if filled {
		return exchange.Fill, nbrNone
	}
	return exchange.NoBid, why
}

// filled reports whether the body, which may be compressed, holds an ad, and the reason if it holds
// none.
func (n NoBidBody) filled(res *exchange.Response) (bool, noBidReason) {
	coding, fields := identity, 0
	for name, value := range syntax.Fields(res.Fields) {
		if syntax.EqualFold(name, "Content-Encoding") {
			coding = value
			fields++
		}
	}
	switch {
	case fields > 1:
		return true, nbrNone // several content codings
	case syntax.EqualFold(coding, "identity"):
		return n.search(res.Body)
	}
	return n.searchCoded(coding, res.Body)
}

var identity = []byte("identity")

var vastAd = []byte("Ad")

// HasAd reports whether a body without a content coding holds an ad. If a search is not conclusive, it returns true.
func (n NoBidBody) HasAd(body []byte) bool {
	filled, _ := n.search(body)
	return filled
}

// search reports whether body holds an ad, and the reason if it holds none. If a search is not conclusive,
// it returns true.
func (n NoBidBody) search(body []byte) (bool, noBidReason) {
	if len(body) > maxScan {
		return true, nbrNone
	}
	switch n {
	case NoBidVAST:
		return hasVASTAd(body), nbrNone
	case NoBidOpenRTB:
		return hasBid(body)
	default:
		return true, nbrNone
	}
}

// hasVASTAd reports whether a VAST document holds an ad.
func hasVASTAd(body []byte) bool {
	if isWide(body) {
		return true
	}
	for i := 0; ; {
		n := bytes.Index(body[i:], vastAd)
		if n < 0 {
			return false
		}
		start := i + n
		i = start + len(vastAd)
		// <AdSystem> or <AdTitle> occurs only within an <Ad>, but a malformed document must not
		// count as an ad.
		if i < len(body) && (body[i] == '>' || body[i] == '/' || body[i] <= ' ') && beginsTag(body[:start]) {
			return true
		}
	}
}

// beginsTag reports whether b ends with the start of a tag: "<", or "<" and a namespace prefix, such as "<vast:".
func beginsTag(b []byte) bool {
	prefix, ok := bytes.CutSuffix(b, []byte{':'})
	if !ok {
		return bytes.HasSuffix(b, []byte{'<'})
	}
	i := len(prefix) - 1
	for i >= 0 && prefix[i] > ' ' && strings.IndexByte("<>/:=\"'&", prefix[i]) < 0 {
		i--
	}
	return i >= 0 && i < len(prefix)-1 && prefix[i] == '<'
}

// hasBid reports whether a BidResponse holds a bid, and the reason if it holds none. An unreadable one may
// hold bids for a lenient client.
func hasBid(body []byte) (bool, noBidReason) {
	body = openrtb.Document(body)
	if len(body) == 0 {
		return false, nbrNone
	}
	f := openrtb.AcquireFacts()
	defer f.Release()
	r := openrtb.ReadBidResponse(body, f)
	if r.HasBid || r.Reason != openrtb.Readable {
		return true, nbrNone
	}
	return false, noBidReasonOf(r.NBR)
}

// isWide reports whether body is UTF-16 or UTF-32, which XML allows. Such a body has a byte order
// mark, or a zero byte beside its first character.
func isWide(body []byte) bool {
	const shortest = 2 * len("<Ad>") // that holds an ad
	if len(body) < shortest {
		return false
	}
	a, b := body[0], body[1]
	return a == 0 || b == 0 || a == 0xfe && b == 0xff || a == 0xff && b == 0xfe
}

// maxCodedScan bounds the size of a compressed body that is decoded. A larger body counts as an ad.
// A document without an ad takes 50 to 500 bytes.
//
// It also bounds the cost of a hostile body. The worst case is not a large output, which maxScan
// bounds. It is tables: 10 bytes of deflate make the decoder build some, in 1.5 µs. With 2 KB, that
// costs no more than the longest search in 64 KB.
const maxCodedScan = 2 << 10

// searchCoded reports whether a body with a content coding holds an ad, and the reason if it holds
// none. Only gzip is decoded. A body with another coding counts as an ad, and so does one that cannot be
// decoded completely within the bounds.
func (n NoBidBody) searchCoded(coding, body []byte) (bool, noBidReason) {
	if len(body) > maxCodedScan || !openrtb.IsGzip(coding) {
		return true, nbrNone
	}
	g := openrtb.AcquireGunzipper()
	defer g.Release()
	document, err := g.Decode(body, maxScan)
	if err != nil {
		return true, nbrNone
	}
	return n.search(document)
}
