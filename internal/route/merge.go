package route

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"adbuffer/internal/openrtb"
	"adbuffer/internal/ssp"
	"adbuffer/internal/syntax"
	"adbuffer/internal/upstream"
)

// The statuscodes of seatnonbid that do not follow from an outcome.
const (
	nonBidGeneral  = 100
	nonBidLate     = 101
	nonBidInvalid  = 102
	nonBidCurrency = 300 // a response that was left out for its currency
)

// merger builds one BidResponse from the responses of a fan-out's legs.
type merger struct {
	request openrtb.BidRequest
	ids     []byte // of the request's impressions, an array
	legs    []mergedLeg
	// currency is the text of the currency of all bids in the result; nil before the first one.
	currency []byte
}

// mergedLeg is one SSP's part in a merged BidResponse.
type mergedLeg struct {
	seats    []byte // its seatbid, an array; nil if the SSP gave no bid
	currency []byte // text
	status   int    // its statuscode in seatnonbid, if seats is nil
	noBid    bool   // the SSP responded that it has no bid
}

// CheckMerge returns why a request cannot be merged, or "".
func CheckMerge(r *ssp.Request) string {
	if why := UnreadableHeader(r.Fields); why != openrtb.Readable {
		return "merge: openrtb cannot read the body: " + why.Text()
	}
	f := openrtb.AcquireFacts()
	defer f.Release()
	switch q := openrtb.ReadBidRequest(r.Body, f); {
	case q.Reason != openrtb.Readable:
		return "merge: openrtb cannot read the body: " + q.Reason.Text()
	case q.ID == nil:
		return "merge: openrtb needs a request with an id"
	}
	return ""
}

// merged builds the response of parallel-all with merge: openrtb: the seats of all bids in one currency, in
// the route's order, and the reason of every other SSP. During this the legs' bodies and the result are both
// held, and both count in the budget.
func (f *fanout) merged(r *ssp.Request) Result {
	facts := openrtb.AcquireFacts()
	defer facts.Release()
	m := merger{request: openrtb.ReadBidRequest(r.Body, facts), legs: make([]mergedLeg, len(f.legs))}
	for i := range f.legs {
		m.legs[i] = f.legs[i].bids(m.request.ID, facts)
	}
	m.chooseCurrency()
	res := Result{Outcome: upstream.Merged, legs: f.legLog()}
	if m.currency == nil {
		res.NoAd, res.NoAdFor = true, m.cause(f)
		return res
	}
	m.ids = impressionIDs(m.request.Imp)
	ex, err := newCombined(r.Budget, m.bound(f)+len(m.ids))
	if err != nil {
		res.Outcome, res.Err = err.Outcome, err
		return res
	}
	ex.Response.Body, res.Exchange = m.append(ex.Response.Body, f), ex
	return res
}

// cause returns the outcome that stands for all legs, none of which gave a bid that counts: NoBid if an SSP had
// no bid, else that of the first leg that was asked.
func (m *merger) cause(f *fanout) upstream.Outcome {
	for i := range m.legs {
		if m.legs[i].noBid {
			return upstream.NoBid
		}
	}
	first := 0
	for first < len(f.legs)-1 && f.legs[first].received && f.legs[first].outcome == upstream.Filtered {
		first++
	}
	switch l := &f.legs[first]; {
	case !l.received:
		return upstream.Deadline
	case l.outcome == upstream.Fill: // its bids do not count
		return upstream.BadResponse
	default:
		return l.outcome
	}
}

// bids reads the response of l to the request with this id.
func (l *leg) bids(id []byte, facts *openrtb.Facts) mergedLeg {
	switch {
	case !l.received:
		return mergedLeg{status: nonBidLate}
	case l.err != nil:
		return mergedLeg{status: l.err.Outcome.Row().NonBid}
	case l.outcome != upstream.Fill && l.outcome != upstream.NoBid:
		return mergedLeg{status: l.outcome.Row().NonBid}
	}
	body, ok := l.plainBody()
	switch {
	case !ok:
		return mergedLeg{status: nonBidInvalid}
	case len(body) == 0:
		return mergedLeg{status: nonBidGeneral, noBid: true}
	case !utf8.Valid(body) || !syntax.ValidJSON(body):
		return mergedLeg{status: nonBidInvalid}
	}
	res := openrtb.ReadBidResponse(body, facts)
	switch {
	case res.Reason != openrtb.Readable:
		return mergedLeg{status: nonBidInvalid}
	case !res.HasBid:
		return mergedLeg{status: nonBidOf(res.NBR), noBid: true}
	case res.SeatBid == nil || !areSeats(res.SeatBid) || !sameText(res.ID, id):
		return mergedLeg{status: nonBidInvalid}
	}
	currency := []byte("USD")
	switch string(res.Cur) {
	case "", "null", `""`:
	default:
		if res.Cur[0] != '"' {
			return mergedLeg{status: nonBidInvalid}
		}
		currency = openrtb.AppendText(nil, res.Cur)
	}
	return mergedLeg{seats: res.SeatBid, currency: currency}
}

var findBids = openrtb.NewFinderInAnyCase(openrtb.Path{"bid"})

// areSeats reports whether an array's elements are seats with bids. A client's parser that expects objects would
// refuse the bids of all SSPs for one that is none.
func areSeats(array []byte) bool {
	for seat := range openrtb.Elements(array) {
		start, end := findBids.Find(seat)
		if start < end && !areObjects(seat[start:end]) {
			return false
		}
	}
	return areObjects(array)
}

// areObjects reports whether value is an array of objects.
func areObjects(value []byte) bool {
	for element := range openrtb.Elements(value) {
		if element[0] != '{' {
			return false
		}
	}
	return value[0] == '['
}

// plainBody returns the response's body without a content coding. ok is false if that is not possible within the
// SSP's limit.
func (l *leg) plainBody() (body []byte, ok bool) {
	response := &l.ex.Response
	coding, encoded := syntax.FindField(response.Fields, "Content-Encoding")
	switch {
	case !encoded || len(response.Body) == 0 || syntax.EqualFold(coding, "identity"):
		return response.Body, true
	case !openrtb.IsGzip(coding):
		return nil, false
	}
	g := openrtb.AcquireGunzipper()
	defer g.Release()
	limit := l.target.SSP.MaxResponseBytes()
	decoded, err := g.Decode(response.Body, limit)
	if err != nil || len(decoded) > limit || l.ex.Reserve(len(response.Body)+len(decoded)) != nil {
		return nil, false
	}
	return bytes.Clone(decoded), true
}

// nonBidOf returns the statuscode for an SSP's own reason for a no-bid, nil if it gave none.
func nonBidOf(nbr []byte) int {
	const lastReason = 17 // OpenRTB 3.0, "List: No-Bid Reason Codes"
	n, ok := syntax.ParseNumber(nbr, nonBidGeneral)
	if !ok || n > lastReason {
		return nonBidGeneral
	}
	return n
}

// sameText reports whether two JSON values are strings with the same content.
func sameText(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	return len(a) > 0 && a[0] == '"' && bytes.Equal(openrtb.AppendText(nil, a), openrtb.AppendText(nil, b))
}

// chooseCurrency chooses the request's first currency that a response has, or the first response's if the request
// names none. It leaves out the responses in other currencies.
func (m *merger) chooseCurrency() {
	named := false
	for wanted := range openrtb.Elements(m.request.Cur) {
		named = true
		if m.currency == nil {
			m.currency = m.firstCurrency(openrtb.AppendText([]byte{}, wanted))
		}
	}
	if !named {
		m.currency = m.firstCurrency(nil)
	}
	for i := range m.legs {
		if l := &m.legs[i]; l.seats != nil && (m.currency == nil || !bytes.Equal(l.currency, m.currency)) {
			*l = mergedLeg{status: nonBidCurrency}
		}
	}
}

// firstCurrency returns the currency of the first response in wanted, nil for any.
func (m *merger) firstCurrency(wanted []byte) []byte {
	for i := range m.legs {
		if l := &m.legs[i]; l.seats != nil && (wanted == nil || bytes.Equal(l.currency, wanted)) {
			return l.currency
		}
	}
	return nil
}

// findID finds the id of an impression.
var findID = openrtb.NewFinder(openrtb.Path{"id"})

// impressionIDs returns the ids of impressions, as an array. So a request with many impressions costs one search for
// them, and not one for each SSP.
func impressionIDs(imp []byte) []byte {
	ids := []byte{'['}
	for i := range openrtb.Elements(imp) {
		start, end := findID.Find(i)
		if start < end {
			if len(ids) > 1 {
				ids = append(ids, ',')
			}
			ids = append(ids, i[start:end]...)
		}
	}
	return append(ids, ']')
}

const (
	mergedFrame = `{"id":,"seatbid":[],"cur":,"ext":{"seatnonbid":[]}}`
	seatFrame   = `{"seat":,"nonbid":[]},`
	nonBidFrame = `{"impid":,"statuscode":500},`
)

// bound returns the maximum number of bytes of the result.
func (m *merger) bound(f *fanout) int {
	n := len(mergedFrame) + len(m.request.ID) + syntax.JSONStringLen(m.currency)
	impressions := 0
	for id := range openrtb.Elements(m.ids) {
		impressions += len(nonBidFrame) + len(id)
	}
	for i := range m.legs {
		if l := &m.legs[i]; l.seats != nil {
			n += len(l.seats)
		} else {
			n += len(seatFrame) + syntax.JSONStringLen([]byte(f.legs[i].target.SSP.Name())) + impressions
		}
	}
	return n
}

// append appends the result.
func (m *merger) append(b []byte, f *fanout) []byte {
	b = append(append(append(b, `{"id":`...), m.request.ID...), `,"seatbid":[`...)
	separate := func(opening byte) {
		if b[len(b)-1] != opening {
			b = append(b, ',')
		}
	}
	for i := range m.legs {
		if seats := m.legs[i].seats; seats != nil {
			separate('[')
			b = append(b, bytes.Trim(seats[1:len(seats)-1], " \t\r\n")...)
		}
	}
	b = syntax.AppendJSONString(append(b, `],"cur":`...), m.currency)
	b = append(b, `,"ext":{"seatnonbid":[`...)
	for i := range m.legs {
		l := &m.legs[i]
		if l.seats != nil {
			continue
		}
		separate('[')
		b = syntax.AppendJSONString(append(b, `{"seat":`...), []byte(f.legs[i].target.SSP.Name()))
		b = append(b, `,"nonbid":[`...)
		for id := range openrtb.Elements(m.ids) {
			separate('[')
			b = append(append(append(b, `{"impid":`...), id...), `,"statuscode":`...)
			b = append(strconv.AppendInt(b, int64(l.status), 10), '}')
		}
		b = append(b, "]}"...)
	}
	return append(b, "]}}"...)
}
