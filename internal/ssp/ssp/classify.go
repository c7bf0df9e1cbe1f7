package ssp

import (
	"bytes"
	"errors"
	"strings"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/openrtb"
	"adbuffer/internal/wire/syntax"
)

// NoBidBody says how a body distinguishes a no-bid from a fill.
type NoBidBody string

// The values of `no_bid_body`. With another one, such as "none", any body is a fill. A body that is neither a document
// with an ad nor one without is Unreadable.
const (
	NoBidVAST    NoBidBody = "vast"    // a document without the element Ad is no bid
	NoBidOpenRTB NoBidBody = "openrtb" // a document without a bid is no bid
)

// maxScan bounds the size of a body that is searched for an ad. Of a larger body, only the first and the last byte of
// the document are read.
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
	return s.opts.NoBidBody.judge(res)
}

// judge returns the outcome of a 2xx response with a body, which may be compressed: Fill, NoBid or Unreadable. It also
// returns the SSP's reason for a no-bid. A body that cannot be judged within the bounds is a Fill.
func (n NoBidBody) judge(res *exchange.Response) (exchange.Outcome, noBidReason) {
	coding, fields := identity, 0
	for name, value := range syntax.Fields(res.Fields) {
		if syntax.EqualFold(name, "Content-Encoding") {
			coding = value
			fields++
		}
	}
	o, why := exchange.Fill, nbrNone // of several content codings
	switch {
	case fields > 1:
	case syntax.EqualFold(coding, "identity"):
		o, why = n.search(res.Body)
	default:
		o, why = n.searchCoded(coding, res.Body)
	}
	if o == exchange.Unreadable && n == NoBidOpenRTB {
		if contentType, _ := syntax.FindField(res.Fields, "Content-Type"); openrtb.IsProtobuf(contentType) {
			return exchange.Fill, nbrNone // a BidResponse that adbuffer cannot read
		}
	}
	return o, why
}

var identity = []byte("identity")

var vastAd = []byte("Ad")

// IsNoBid reports whether a body without a content coding is a no-bid.
func (n NoBidBody) IsNoBid(body []byte) bool {
	o, _ := n.search(body)
	return o == exchange.NoBid
}

// search judges a body without a content coding.
func (n NoBidBody) search(body []byte) (exchange.Outcome, noBidReason) {
	switch {
	case len(body) > maxScan:
		return n.searchEnds(body), nbrNone
	case n == NoBidVAST:
		return searchVAST(body), nbrNone
	case n == NoBidOpenRTB:
		return searchBids(body)
	}
	return exchange.Fill, nbrNone
}

// searchEnds judges a body of more than maxScan bytes by the first and the last byte of its document.
func (n NoBidBody) searchEnds(body []byte) exchange.Outcome {
	first, last := openrtb.Document(body[:maxScan]), openrtb.Document(body[len(body)-maxScan:])
	switch {
	case len(first) == 0, len(last) == 0: // it is surrounded by more blanks than are read
	case n == NoBidVAST && !isWide(body) && (first[0] != '<' || last[len(last)-1] != '>'),
		n == NoBidOpenRTB && (first[0] != '{' || last[len(last)-1] != '}'):
		return exchange.Unreadable
	}
	return exchange.Fill
}

// searchVAST judges a body that should be a VAST document. A document in UTF-16 or UTF-32 is not read: it is a Fill if it
// is long enough for an ad.
func searchVAST(body []byte) exchange.Outcome {
	if isWide(body) {
		if len(body) < shortestWideAd {
			return exchange.NoBid
		}
		return exchange.Fill
	}
	document := openrtb.Document(body)
	hasAd := hasVASTAd(document)
	switch {
	case len(document) == 0:
		return exchange.NoBid
	case document[0] == '<' && document[len(document)-1] != '>': // it is cut
		return exchange.Unreadable
	case hasAd:
		return exchange.Fill
	case isVASTRoot(rootElement(document)):
		return exchange.NoBid
	}
	return exchange.Unreadable
}

// hasVASTAd reports whether a document holds an ad of VAST.
func hasVASTAd(body []byte) bool {
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

// rootElement returns the name of the first element of an XML document, without its namespace prefix; empty if there is
// none.
func rootElement(document []byte) []byte {
	for {
		document = bytes.TrimLeft(document, " \t\r\n")
		end := ">"
		switch {
		case bytes.HasPrefix(document, []byte("<?")):
			end = "?>"
		case bytes.HasPrefix(document, []byte("<!--")):
			end = "-->"
		case bytes.HasPrefix(document, []byte("<!")): // a document type
		case len(document) > 0 && document[0] == '<':
			name := document[1:]
			if n := bytes.IndexAny(name, " \t\r\n/>"); n >= 0 {
				name = name[:n]
			}
			return name[bytes.LastIndexByte(name, ':')+1:]
		default:
			return nil
		}
		_, rest, ok := bytes.Cut(document, []byte(end))
		if !ok {
			return nil
		}
		document = rest
	}
}

// isVASTRoot reports whether the root element of a document without an ad is that of a no-bid: of VAST, VAST 1, VMAP or
// DAAST.
func isVASTRoot(name []byte) bool {
	for _, root := range [...]string{"VAST", "VideoAdServingTemplate", "VMAP", "DAAST"} {
		if syntax.EqualFold(name, root) {
			return true
		}
	}
	return false
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

// searchBids judges a body that should be a BidResponse. A JSON object that adbuffer cannot read unambiguously is a Fill,
// since it may hold bids for a lenient client.
func searchBids(body []byte) (exchange.Outcome, noBidReason) {
	body = openrtb.Document(body)
	if len(body) == 0 {
		return exchange.NoBid, nbrNone
	}
	f := openrtb.AcquireFacts()
	defer f.Release()
	r := openrtb.ReadBidResponse(body, f)
	switch {
	case r.Reason == openrtb.Syntax, r.Reason == openrtb.NotObject:
		return exchange.Unreadable, nbrNone
	case r.HasBid, r.Reason != openrtb.Readable:
		return exchange.Fill, nbrNone
	}
	return exchange.NoBid, noBidReasonOf(r.NBR)
}

// shortestWideAd is the length of the shortest document in UTF-16 that holds an ad.
const shortestWideAd = 2 * len("<Ad>")

// isWide reports whether body is UTF-16 or UTF-32, which XML allows. Such a body has a byte order
// mark, or a zero byte beside its first character.
func isWide(body []byte) bool {
	if len(body) < 2 {
		return false
	}
	a, b := body[0], body[1]
	return a == 0 || b == 0 || a == 0xfe && b == 0xff || a == 0xff && b == 0xfe
}

// maxCodedScan bounds the size of a compressed body that is decoded. A larger body counts as an ad if it begins as
// its coding does. A document without an ad takes 50 to 500 bytes.
//
// It also bounds the cost of a hostile body. The worst case is not a large output, which maxScan
// bounds. It is tables: 10 bytes of deflate make the decoder build some, in 1.5 µs, and 27 bytes
// of zstd in 9 µs. With 2 KB, that
// costs no more than the longest search in 64 KB.
const maxCodedScan = 2 << 10

// searchCoded judges a body with a content coding. Gzip and zstd are decoded. A body with another coding that HTTP knows, or
// with several codings, is a Fill, since the client may have asked for that; so is a body that decodes to more than the
// bounds allow.
func (n NoBidBody) searchCoded(coding, body []byte) (exchange.Outcome, noBidReason) {
	switch {
	case !openrtb.CanDecode(coding):
		if len(coding) == 0 || bytes.IndexByte(coding, ',') >= 0 || isKnownCoding(coding) {
			return exchange.Fill, nbrNone
		}
		return exchange.Unreadable, nbrNone
	case !openrtb.BeginsAs(coding, body):
		return exchange.Unreadable, nbrNone
	case len(body) > maxCodedScan:
		return exchange.Fill, nbrNone
	}
	d := openrtb.AcquireDecoder()
	defer d.Release()
	document, err := d.Decode(coding, body, maxScan)
	if err != nil && !errors.Is(err, openrtb.ErrCoding) || len(document) > maxScan {
		return exchange.Fill, nbrNone
	}
	o, why := n.search(document)
	switch {
	case err == nil:
		return o, why
	case len(document) == 0 || o == exchange.Unreadable:
		return exchange.Unreadable, nbrNone
	}
	return exchange.Fill, nbrNone // the document is whole, and a lenient client reads it
}

// isKnownCoding reports whether the IANA registry of HTTP content codings has this coding.
func isKnownCoding(coding []byte) bool {
	for _, known := range [...]string{"br", "deflate", "compress", "x-compress", "dcb", "dcz", "exi", "aes128gcm", "pack200-gzip"} {
		if syntax.EqualFold(coding, known) {
			return true
		}
	}
	return false
}
