package openrtb

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

// bidResponses reads BidResponses of OpenRTB 2, and of OpenRTB 3, whose root is openrtb.response. Names
// have any case: some SSPs write seatBid.
var bidResponses = func() (r struct {
	paths            Paths
	bids             [2]Test
	nbr              [2]Member
	seatbid, id, cur Member
}) {
	r.paths.AnyCase = true
	for i, root := range []Path{nil, {"openrtb", "response"}} {
		below := func(names ...string) Path { return append(append(Path{}, root...), names...) }
		r.bids[i] = r.paths.Condition(&Condition{Path: below("seatbid", AnyElement, "bid", AnyElement)})
		r.nbr[i] = r.paths.Member(below("nbr"))
	}
	r.seatbid, r.id, r.cur = r.paths.Member(Path{"seatbid"}), r.paths.Member(Path{"id"}), r.paths.Member(Path{"cur"})
	return r
}()

// BidRequest is what ReadBidRequest found. Its values are JSON, nil if they are absent.
type BidRequest struct {
	// Reason says why the request is unreadable. Then all else is nil.
	Reason Reason
	// ID, Cur and Imp are the values of the root's members. ID is nil if it is no string.
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
	if len(r.ID) > 0 && r.ID[0] != '"' {
		r.ID = nil
	}
	return r
}

// ReadBidResponse reads an SSP's response. f is its memory.
func ReadBidResponse(body []byte, f *Facts) BidResponse {
	p := &bidResponses
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
