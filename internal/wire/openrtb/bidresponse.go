package openrtb

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"adbuffer/internal/wire/syntax"
)

// BidResponse is the result of ReadBidResponse. Its values are JSON; an absent member is nil.
type BidResponse struct {
	// Reason says why the response is unreadable. If it is, all other fields are zero.
	Reason Reason
	// HasBid says that at least one seat has a bid.
	HasBid bool
	// SeatBid, ID and Cur are values of members of OpenRTB 2; NBR is that of OpenRTB 2 or 3. SeatBid is nil
	// if no seat has a bid.
	SeatBid, ID, Cur, NBR []byte
}

// bidPaths holds the paths of the members that a BidResponse consists of.
type bidPaths struct {
	paths            Paths
	bids             [2]Test
	nbr              [2]Member
	seatbid, id, cur Member
}

// bidResponses reads BidResponses of OpenRTB 2, and those of OpenRTB 3, whose root is openrtb.response. It
// ignores the case of names, since some SSPs write seatBid.
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

// Bids is the result of ReadBids. Its values are JSON; an absent member is nil.
type Bids struct {
	BidResponse
	// Malformed says that a member of the response itself is missing or does not have the type that OpenRTB 2.6
	// requires. Such a response is left out as a whole, and not only some bids or seats.
	Malformed bool
	// LeftOut has an element for each malformed bid or seat that is not in SeatBid: the bid's impid, or an empty
	// value for a seat and for a bid whose impid is malformed or longer than 256 bytes.
	LeftOut [][]byte
}

// The members of OpenRTB 2.6, sections 4.2.1 to 4.2.3, grouped by type.
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

// typedBids is like bidResponses, and also checks the types of all members of OpenRTB 2.
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
	for _, entry := range []*node{seat, bid} {
		entry.kind, entry.isRequired, entry.isEntry = objectKind, true, true
	}
	r.paths.require(bid, "id", "impid", "price")
	r.paths.below(bid, "impid").isEntryID = true
	return r
}()

// ReadBids reads an SSP's response whose bids will be merged into another document. A bid that lacks a required member,
// or has a member whose type is not that of OpenRTB 2.6, is not in SeatBid: ReadBids moves the remaining bids together
// within body. It uses the memory of f.
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

// BidRequest is the result of ReadBidRequest. Its values are JSON; an absent member is nil.
type BidRequest struct {
	// Reason says why the request is unreadable. If it is, all other fields are nil.
	Reason Reason
	// ID, Cur and Imp are the values of the root's members. ID is nil if it is not text (see IsText).
	ID, Cur, Imp []byte
}

var bidRequests = func() (r struct {
	paths        Paths
	id, cur, imp Member
}) {
	r.id, r.cur, r.imp = r.paths.Member(Path{"id"}), r.paths.Member(Path{"cur"}), r.paths.Member(Path{"imp"})
	return r
}()

// ReadBidRequest reads a BidRequest of OpenRTB 2. It uses the memory of f.
func ReadBidRequest(body []byte, f *Facts) BidRequest {
	p := &bidRequests
	p.paths.Scan(body, f)
	r := BidRequest{Reason: f.Reason, ID: f.Value(p.id, body), Cur: f.Value(p.cur, body), Imp: f.Value(p.imp, body)}
	if !IsText(r.ID) {
		r.ID = nil
	}
	return r
}

// IsText reports whether a JSON value is a string that every parser accepts: valid UTF-8 without lone surrogates.
func IsText(value []byte) bool {
	return len(value) > 0 && value[0] == '"' && utf8.Valid(value) && syntax.ValidJSON(value)
}

var byteOrderMark = []byte("\uFEFF")

// Document returns the JSON document in body, without the surrounding blanks and without a byte order mark, which a
// parser may ignore (RFC 8259, section 8.1). It returns nil if the document is null, and an empty document for a body
// without one.
func Document(body []byte) []byte {
	document := bytes.Trim(bytes.TrimPrefix(body, byteOrderMark), " \t\r\n")
	if string(document) == "null" {
		return nil
	}
	return document
}

// ReadBidResponse reads an SSP's response. It uses the memory of f.
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
