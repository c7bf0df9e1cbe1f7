package openrtb

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"adbuffer/internal/wire/syntax"
)

// BidResponse is what ReadBidResponse found. Its values are JSON, nil if they are absent.
type BidResponse struct {
	// Reason says why the response is unreadable. Then all else is zero.
	Reason Reason
	// HasBid says that a seat has a bid.
	HasBid bool
	// SeatBid, ID and Cur are the values of members of OpenRTB 2, and NBR also that of OpenRTB 3. SeatBid is nil
	// unless it has a bid.
	SeatBid, ID, Cur, NBR []byte
}

// bidPaths are the members that a BidResponse consists of.
type bidPaths struct {
	paths            Paths
	bids             [2]Test
	nbr              [2]Member
	seatbid, id, cur Member
}

// bidResponses reads BidResponses of OpenRTB 2, and of OpenRTB 3, whose root is openrtb.response. Names
// have any case: some SSPs write seatBid.
var bidResponses = newBidPaths()

func newBidPaths() (r bidPaths) {
	r.paths.AnyCase = true
	for i, root := range []Path{nil, {"openrtb", "response"}} {
		below := func(names ...string) Path { return append(append(Path{}, root...), names...) }
		r.bids[i] = r.paths.Condition(&Condition{Path: below("seatbid", AnyElement, "bid", AnyElement)})
		r.nbr[i] = r.paths.Member(below("nbr"))
	}
	r.seatbid, r.id, r.cur = r.paths.Member(Path{"seatbid"}), r.paths.Member(Path{"id"}), r.paths.Member(Path{"cur"})
	return r
}

// Bids is what ReadBids found. Its values are JSON, nil if they are absent.
type Bids struct {
	BidResponse
	// Malformed reports that a member of the response is missing or does not have its type of OpenRTB 2.6, so that
	// the whole response is left out, and not only a bid or a seat.
	Malformed bool
	// LeftOut are the values of impid of the bids that are not in SeatBid, since they are malformed; empty for a bid
	// whose impid is malformed too or over 256 bytes, and for a seat.
	LeftOut [][]byte
}

// The members of OpenRTB 2.6, sections 4.2.1 to 4.2.3, by their types.
const (
	responseTexts = "id bidid cur customdata"

	seatTexts    = "seat"
	seatIntegers = "group"

	bidTexts        = "id impid nurl burl lurl adm adid bundle iurl cid crid tactic language langb dealid"
	bidNumbers      = "price"
	bidIntegers     = "cattax api protocol qagmediarating w h wratio hratio exp dur mtype slotinpod"
	bidTextLists    = "adomain cat"
	bidIntegerLists = "attr apis"
)

// typedBids is bidResponses with the types of all members of OpenRTB 2.
var typedBids = func() (r bidPaths) {
	r = newBidPaths()
	response := r.paths.node(nil)
	seat := r.paths.node(Path{"seatbid", AnyElement})
	bid := r.paths.node(Path{"seatbid", AnyElement, "bid", AnyElement})
	set := func(n *node, k kind, names string) {
		for name := range strings.FieldsSeq(names) {
			r.paths.below(n, name).kind = k
		}
	}
	set(response, textKind, responseTexts)
	set(response, integerKind, "nbr")
	set(response, arrayKind, "seatbid")
	set(response, objectKind, "ext")
	set(seat, textKind, seatTexts)
	set(seat, integerKind, seatIntegers)
	set(seat, arrayKind, "bid")
	set(seat, objectKind, "ext")
	set(bid, textKind, bidTexts)
	set(bid, numberKind, bidNumbers)
	set(bid, integerKind, bidIntegers)
	set(bid, arrayKind, bidTextLists+" "+bidIntegerLists)
	set(bid, objectKind, "ext")
	for name := range strings.FieldsSeq(bidTextLists) {
		set(r.paths.below(bid, name), textKind, AnyElement)
	}
	for name := range strings.FieldsSeq(bidIntegerLists) {
		set(r.paths.below(bid, name), integerKind, AnyElement)
	}
	for _, part := range []*node{seat, bid} {
		part.kind, part.isRequired, part.isPart = objectKind, true, true
	}
	r.paths.require(bid, "id", "impid", "price")
	r.paths.below(bid, "impid").isPartID = true
	return r
}()

// ReadBids reads an SSP's response whose bids are for a reader of types. A bid that has a member of another type than
// OpenRTB 2.6 says, or lacks a required one, is not in SeatBid: ReadBids moves the others within body. f is its memory.
func ReadBids(body []byte, f *Facts) Bids {
	b := Bids{BidResponse: typedBids.read(body, f), Malformed: f.malformed}
	if b.SeatBid == nil || f.malformed {
		return b
	}
	for _, id := range f.leftOut {
		b.LeftOut = append(b.LeftOut, bytes.Clone(body[id.start:id.end]))
	}
	b.SeatBid = f.withoutCuts(body, f.members[typedBids.seatbid.index])
	return b
}

// BidRequest is what ReadBidRequest found. Its values are JSON, nil if they are absent.
type BidRequest struct {
	// Reason says why the request is unreadable. Then all else is nil.
	Reason Reason
	// ID, Cur and Imp are the values of the root's members. ID is nil if it is no text (see IsText).
	ID, Cur, Imp []byte
}

var bidRequests = func() (r struct {
	paths        Paths
	id, cur, imp Member
}) {
	r.id, r.cur, r.imp = r.paths.Member(Path{"id"}), r.paths.Member(Path{"cur"}), r.paths.Member(Path{"imp"})
	return r
}()

// ReadBidRequest reads a BidRequest of OpenRTB 2. f is its memory.
func ReadBidRequest(body []byte, f *Facts) BidRequest {
	p := &bidRequests
	p.paths.Scan(body, f)
	r := BidRequest{Reason: f.Reason, ID: f.Value(p.id, body), Cur: f.Value(p.cur, body), Imp: f.Value(p.imp, body)}
	if !IsText(r.ID) {
		r.ID = nil
	}
	return r
}

// IsText reports whether a JSON value is a string that any parser reads: of UTF-8, and without lone surrogates.
func IsText(value []byte) bool {
	return len(value) > 0 && value[0] == '"' && utf8.Valid(value) && syntax.ValidJSON(value)
}

var byteOrderMark = []byte("\uFEFF")

// Document returns the JSON document that a body holds: without a byte order mark, which a parser may ignore (RFC 8259,
// section 8.1), and without blanks around it. It is empty if there is nothing else, or if it is null.
func Document(body []byte) []byte {
	document := bytes.Trim(bytes.TrimPrefix(body, byteOrderMark), " \t\r\n")
	if string(document) == "null" {
		return nil
	}
	return document
}

// ReadBidResponse reads an SSP's response. f is its memory.
func ReadBidResponse(body []byte, f *Facts) BidResponse { return bidResponses.read(body, f) }

func (p *bidPaths) read(body []byte, f *Facts) BidResponse {
	p.paths.Scan(body, f)
	if f.Reason != Readable {
		return BidResponse{Reason: f.Reason}
	}
	r := BidResponse{
		HasBid: f.Holds(p.bids[0]) || f.Holds(p.bids[1]),
		ID:     f.Value(p.id, body), Cur: f.Value(p.cur, body), NBR: f.Value(p.nbr[0], body),
	}
	if f.Holds(p.bids[0]) {
		r.SeatBid = f.Value(p.seatbid, body)
	}
	if r.NBR == nil {
		r.NBR = f.Value(p.nbr[1], body)
	}
	return r
}
