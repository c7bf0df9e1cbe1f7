package route

import (
	"bytes"
	"errors"
	"strconv"
	"time"
	"unicode/utf8"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/openrtb"
	"adbuffer/internal/wire/syntax"
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
	ids     []byte // array of the ids of the request's impressions
	legs    []mergedLeg
	// currency is the currency of all bids in the result; nil until the first bid is added.
	currency []byte
	// truncated says that each seat without a bid has a single reason, and not a reason for each impression.
	truncated bool
}

// mergedLeg is what one SSP contributes to a merged BidResponse.
type mergedLeg struct {
	seats    []byte // the array seatbid of the SSP's response; nil if the SSP gave no bid
	currency []byte // text
	status   int    // the statuscode in seatnonbid, if seats is nil
	noBid    bool   // the SSP responded that it has no bid
	nbr      int    // the SSP's reason for the no-bid; noReason if the SSP gave no reason
	// excluded is an array of the impids of the bids that the SSP sent and that are not in seats. excludesUnknown says
	// that the impid of at least one such bid is unknown.
	excluded        []byte
	excludesUnknown bool
}

// defaultCurrency is the currency of requests and responses without cur. It must not be modified.
var defaultCurrency = []byte("USD")

// decodePatience is how long a merge may wait for turns to decode, even beyond the deadline: it waits for its SSPs until
// the deadline, and deadline.reserve leaves time for work after that.
const decodePatience = 20 * time.Millisecond

// noReason is the nbr of an SSP that gave no reason.
const noReason = -1

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
		return "merge: openrtb needs a request with an id, a string of valid Unicode"
	}
	return ""
}

// merged builds the response of parallel-all with merge: openrtb: the seats of all bids in one currency, in
// the route's order, and the reason of every other SSP. While the result is built, it and the legs' bodies are in
// memory together, and both count in the budget.
func (f *fanout) merged(r *ssp.Request) Result {
	facts := openrtb.AcquireFacts()
	defer facts.Release()
	m := merger{request: openrtb.ReadBidRequest(r.Body, facts), legs: make([]mergedLeg, len(f.legs))}
	use := openrtb.Resources{Budget: r.Budget, CPU: r.CPU, Deadline: r.Deadline}
	if soon := time.Now().Add(decodePatience); soon.After(use.Deadline) {
		use.Deadline = soon
	}
	for i := range f.legs {
		m.legs[i] = f.legs[i].bids(m.request.ID, facts, use)
	}
	m.chooseCurrency()
	res := Result{Outcome: exchange.Merged, legs: f.legLog()}
	if m.currency == nil {
		res.NoAd, res.NoAdFor = true, m.cause(f)
		res.NBR = res.NoAdFor.Row().NBR
		if res.NoAdFor == exchange.NoBid {
			res.NBR = m.reason(f, res.NBR)
		}
		return res
	}
	m.ids = impressionIDs(m.request.Imp)
	ex, err := newCombined(r.Budget, m.maxBytes(f, len(r.Body)+extraOwnBytes)+len(m.ids))
	if err != nil {
		res.Outcome, res.Err = err.Outcome, err
		return res
	}
	ex.Response.Body, res.Exchange, res.Filled = m.append(ex.Response.Body, f), ex, true
	return res
}

// cause returns the outcome of a request that was to be merged, but for which no leg gave a valid bid: NoBid if an SSP
// responded that it has no bid, or else the outcome of the first leg that was asked.
func (m *merger) cause(f *fanout) exchange.Outcome {
	for i := range m.legs {
		if m.legs[i].noBid {
			return exchange.NoBid
		}
	}
	first := 0
	for first < len(f.legs)-1 && f.legs[first].received && f.legs[first].outcome.NotAsked() {
		first++
	}
	switch l := &f.legs[first]; {
	case !l.received:
		return exchange.Deadline
	case l.outcome == exchange.Fill: // the response has bids, but all of them were excluded
		return exchange.BadResponse
	default:
		return l.outcome
	}
}

// reason returns the no-bid reason if all SSPs that were asked gave the same reason, and other if not.
func (m *merger) reason(f *fanout, other int) int {
	nbr := noReason
	for i := range m.legs {
		l := &m.legs[i]
		if f.legs[i].received && f.legs[i].outcome.NotAsked() {
			continue
		}
		if !l.noBid || l.nbr == noReason || nbr != noReason && nbr != l.nbr {
			return other
		}
		nbr = l.nbr
	}
	return nbr
}

// bids reads the response of l to the request with this id, and counts the bids and seats that readBids leaves out.
func (l *leg) bids(id []byte, facts *openrtb.Facts, use openrtb.Resources) mergedLeg {
	m, leftOut := l.readBids(id, facts, use)
	if l.received && l.err == nil && (l.outcome == exchange.Fill || l.outcome == exchange.NoBid || l.outcome == exchange.Unreadable) {
		l.target.SSP.Merged(leftOut, m.status == nonBidInvalid)
	}
	return m
}

// readBids also returns how many bids and seats it left out of the response.
func (l *leg) readBids(id []byte, facts *openrtb.Facts, use openrtb.Resources) (m mergedLeg, leftOut int) {
	switch {
	case !l.received:
		return mergedLeg{status: nonBidLate}, 0
	case l.err != nil:
		return mergedLeg{status: l.err.Outcome.Row().NonBid}, 0
	case l.outcome != exchange.Fill && l.outcome != exchange.NoBid:
		return mergedLeg{status: l.outcome.Row().NonBid}, 0
	}
	body, ok := l.plainBody(use)
	body = openrtb.Document(body)
	switch {
	case l.err != nil:
		return mergedLeg{status: l.err.Outcome.Row().NonBid}, 0
	case !ok:
		return mergedLeg{status: nonBidInvalid}, 0
	case len(body) == 0:
		return noBid(nil), 0
	case !utf8.Valid(body) || !syntax.ValidJSON(body):
		return mergedLeg{status: nonBidInvalid}, 0
	}
	res := openrtb.ReadBids(body, facts)
	switch {
	case res.Reason != openrtb.Readable || res.Malformed:
		return mergedLeg{status: nonBidInvalid}, 0
	case !res.HasBid:
		return noBid(res.NBR), 0
	case res.SeatBid == nil || !sameText(res.ID, id):
		return mergedLeg{status: nonBidInvalid}, 0
	}
	m.seats, m.currency = res.SeatBid, defaultCurrency
	switch string(res.Cur) {
	case "", "null", `""`:
	default:
		m.currency = openrtb.AppendText(nil, res.Cur)
	}
	for _, impID := range res.LeftOut {
		if len(impID) == 0 {
			m.excludesUnknown = true
		} else {
			m.excluded = appendElement(m.excluded, impID)
		}
	}
	if m.excluded != nil {
		m.excluded = append(m.excluded, ']')
	}
	return m, len(res.LeftOut)
}

// appendElement appends an element to an array that lacks its closing bracket; array is nil before the first element.
func appendElement(array, element []byte) []byte {
	if len(array) <= len("[") {
		array = append(array[:0], '[')
	} else {
		array = append(array, ',')
	}
	return append(array, element...)
}

// plainBody returns the response's body without a content coding. ok is false if that is not possible within the
// SSP's limit. If adbuffer lacks the CPU or the memory for it, the leg ends as overloaded.
func (l *leg) plainBody(use openrtb.Resources) (body []byte, ok bool) {
	response := &l.ex.Response
	coding, encoded := syntax.FindField(response.Fields, "Content-Encoding")
	switch {
	case !encoded || len(response.Body) == 0 || syntax.EqualFold(coding, "identity"):
		return response.Body, true
	case !openrtb.CanDecode(coding):
		return nil, false
	}
	d := openrtb.AcquireDecoder()
	defer d.Release()
	use.Party = cpushare.PartyNamed(l.target.SSP.Name())
	d.Resources = use
	limit := l.target.SSP.MaxResponseBytes()
	decoded, err := d.Decode(coding, response.Body, limit)
	switch {
	case errors.Is(err, openrtb.ErrNoTurn), errors.Is(err, openrtb.ErrNoMemory):
		l.outcome, l.err = exchange.Overloaded, exchange.Errorf(exchange.Overloaded, exchange.MaybeProcessed, "%v", err)
		return nil, false
	case err != nil || len(decoded) > limit || l.ex.Reserve(len(response.Body)+len(decoded)) != nil:
		return nil, false
	}
	return bytes.Clone(decoded), true
}

// noBid returns the leg of an SSP that has no bid. nbr is the reason that the SSP gave, or nil.
func noBid(nbr []byte) mergedLeg {
	const (
		lastReason = 17 // OpenRTB 3.0, "List: No-Bid Reason Codes"
		maxReason  = 1e9
	)
	m := mergedLeg{status: nonBidGeneral, noBid: true, nbr: noReason}
	if n, ok := syntax.ParseNumber(nbr, maxReason); ok {
		m.nbr = n
		if n <= lastReason {
			m.status = n
		}
	}
	return m
}

// sameText reports whether two JSON values are strings with the same content.
func sameText(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	return len(a) > 0 && a[0] == '"' && bytes.Equal(openrtb.AppendText(nil, a), openrtb.AppendText(nil, b))
}

// chooseCurrency chooses the first of the request's currencies that any response has; USD if the request names no
// currency (OpenRTB 2.6, section 3.2.1). It excludes the responses in other currencies.
func (m *merger) chooseCurrency() {
	named := false
	for wanted := range openrtb.Elements(m.request.Cur) {
		named = true
		if m.currency == nil {
			m.currency = m.firstCurrency(openrtb.AppendText([]byte{}, wanted))
		}
	}
	if !named {
		m.currency = m.firstCurrency(defaultCurrency)
	}
	for i := range m.legs {
		if l := &m.legs[i]; l.seats != nil && (m.currency == nil || !bytes.Equal(l.currency, m.currency)) {
			*l = mergedLeg{status: nonBidCurrency}
		}
	}
}

// firstCurrency returns wanted if a response has that currency, else nil.
func (m *merger) firstCurrency(wanted []byte) []byte {
	for i := range m.legs {
		if l := &m.legs[i]; l.seats != nil && bytes.Equal(l.currency, wanted) {
			return wanted
		}
	}
	return nil
}

// findID finds the id of an impression.
var findID = openrtb.NewFinder(openrtb.Path{"id"})

// impressionIDs returns the ids of all impressions as an array, so that a request with many impressions is searched
// once, and not once for each SSP.
func impressionIDs(imp []byte) []byte {
	ids := []byte{'['}
	for i := range openrtb.Elements(imp) {
		start, end, _ := findID.Find(i)
		if openrtb.IsText(i[start:end]) {
			ids = appendElement(ids, i[start:end])
		}
	}
	return append(ids, ']')
}

const (
	mergedFrame   = `{"id":,"seatbid":[],"cur":,"ext":{"seatnonbid":[],"adbuffer":{"truncated":true}}}`
	seatFrame     = `{"seat":,"nonbid":[]},`
	nonBidFrame   = `{"impid":,"statuscode":500},`
	noImpIDNonBid = `{"statuscode":500},`

	// extraOwnBytes bounds adbuffer's own part of the result, all but the bids: it may be this many bytes longer than the
	// request.
	extraOwnBytes = 64 << 10
)

// maxBytes returns the maximum number of bytes of the result. If adbuffer's own part, all but the bids, would be longer
// than ownLimit with a reason for each impression, maxBytes sets m.truncated.
func (m *merger) maxBytes(f *fanout, ownLimit int) int {
	bids, reasons, short := 0, 0, len(mergedFrame)+len(m.request.ID)+syntax.JSONStringLen(m.currency)
	impressions := nonBidsLen(m.ids)
	for i := range m.legs {
		l := &m.legs[i]
		bids += len(l.seats)
		if !l.hasNonBids() {
			continue
		}
		short += len(seatFrame) + syntax.JSONStringLen([]byte(f.legs[i].target.SSP.Name())) + len(noImpIDNonBid)
		if l.seats != nil {
			reasons += nonBidsLen(l.excluded)
		} else {
			reasons += impressions
		}
	}
	m.truncated = short+reasons > ownLimit
	if m.truncated {
		return bids + short
	}
	return bids + short + reasons
}

// nonBidsLen returns the number of bytes of reasons for impressions with these ids, an array.
func nonBidsLen(ids []byte) (n int) {
	for id := range openrtb.Elements(ids) {
		n += len(nonBidFrame) + len(id)
	}
	return n
}

// hasNonBids reports whether the SSP is in seatnonbid.
func (l *mergedLeg) hasNonBids() bool {
	return l.seats == nil || l.excluded != nil || l.excludesUnknown
}

// append appends the merged BidResponse to b.
func (m *merger) append(b []byte, f *fanout) []byte {
	b = append(append(append(b, `{"id":`...), m.request.ID...), `,"seatbid":[`...)
	for i := range m.legs {
		if seats := m.legs[i].seats; seats != nil {
			b = separated(b)
			b = append(b, bytes.Trim(seats[1:len(seats)-1], " \t\r\n")...)
		}
	}
	b = syntax.AppendJSONString(append(b, `],"cur":`...), m.currency)
	b = append(b, `,"ext":{"seatnonbid":[`...)
	for i := range m.legs {
		l := &m.legs[i]
		if !l.hasNonBids() {
			continue
		}
		b = syntax.AppendJSONString(append(separated(b), `{"seat":`...), []byte(f.legs[i].target.SSP.Name()))
		b = append(b, `,"nonbid":[`...)
		ids, status, unknown := m.ids, l.status, m.truncated
		if l.seats != nil {
			ids, status, unknown = l.excluded, nonBidInvalid, m.truncated || l.excludesUnknown
		}
		if !m.truncated {
			for id := range openrtb.Elements(ids) {
				b = append(append(append(separated(b), `{"impid":`...), id...), `,"statuscode":`...)
				b = append(strconv.AppendInt(b, int64(status), 10), '}')
			}
		}
		if unknown {
			b = append(strconv.AppendInt(append(separated(b), `{"statuscode":`...), int64(status), 10), '}')
		}
		b = append(b, "]}"...)
	}
	b = append(b, ']')
	if m.truncated {
		b = append(b, `,"adbuffer":{"truncated":true}`...)
	}
	return append(b, "}}"...)
}

// separated appends a comma to an array that has an element.
func separated(b []byte) []byte {
	if b[len(b)-1] == '[' {
		return b
	}
	return append(b, ',')
}
