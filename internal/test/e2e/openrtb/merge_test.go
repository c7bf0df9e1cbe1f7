package openrtb

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/openrtb"
)

func TestMain(m *testing.M) { e2e.Main(m) }

// reading is what encoding/json finds in an SSP's response.
type reading struct {
	hasBid  bool
	version int // of OpenRTB; 0 if it is no BidResponse
	body    map[string]any
	// typed says that seats has what a reader of types reads; leftOut are the impids of the other bids.
	typed          bool
	seats, leftOut []any
}

// get returns a member whose name has any case.
func get(object any, name string) any {
	members, _ := object.(map[string]any)
	for key, value := range members {
		if strings.EqualFold(key, name) {
			return value
		}
	}
	return nil
}

func read(body []byte) (r reading) {
	object := decoded(body)
	for i, root := range []any{object, get(get(object, "openrtb"), "response")} {
		seats, _ := get(root, "seatbid").([]any)
		for _, seat := range seats {
			bids, _ := get(seat, "bid").([]any)
			if len(bids) > 0 && !r.hasBid {
				r.hasBid, r.version = true, 2+i
			}
		}
	}
	r.body = object
	r.seats, r.leftOut, r.typed = typedSeats(object)
	return r
}

// currencyOf returns the currency of bids.
func currencyOf(r reading) string {
	if cur, _ := get(r.body, "cur").(string); cur != "" {
		return cur
	}
	return "USD"
}

// typed are the members of a BidResponse of OpenRTB 2.6 for a reader of types.
type (
	typedResponse struct {
		ID, BidID, Cur, CustomData *string
		NBR                        *int32
		Ext                        map[string]any
	}
	typedSeat struct {
		Seat  *string
		Group *int32
		Bid   []json.RawMessage
		Ext   map[string]any
	}
	typedBid struct {
		ID, ImpID                                                                               *string
		Price                                                                                   *float64
		NURL, BURL, LURL, Adm, AdID, Bundle, IURL, CID, CrID, Tactic, Language, LangB, DealID   *string
		CatTax, API, Protocol, QAGMediaRating, W, H, WRatio, HRatio, Exp, Dur, MType, SlotInPod *int32
		ADomain, Cat                                                                            []string
		Attr, APIs                                                                              []int32
		Ext                                                                                     map[string]any
	}
)

// reads reports whether encoding/json reads a value as v.
func reads(value, v any) bool {
	text, err := json.Marshal(value)
	return err == nil && json.Unmarshal(text, v) == nil
}

// typedSeats returns the seats with the bids that a reader of types reads, and the impids of the others, nil for one that
// is unknown. ok is false if no seat stays, or the response itself cannot be read.
func typedSeats(body map[string]any) (seats []any, leftOut []any, ok bool) {
	of, isList := get(body, "seatbid").([]any)
	for _, seat := range of {
		bids, _ := get(seat, "bid").([]any)
		if !reads(seat, new(typedSeat)) || seat == nil {
			leftOut = append(leftOut, nil)
			continue
		}
		stay := []any{}
		for _, bid := range bids {
			var b typedBid
			if reads(bid, &b) && b.ID != nil && b.ImpID != nil && b.Price != nil {
				stay = append(stay, bid)
			} else if id, isText := get(bid, "impid").(string); isText {
				leftOut = append(leftOut, id)
			} else {
				leftOut = append(leftOut, nil)
			}
		}
		if len(stay) == 0 && len(bids) > 0 {
			continue
		}
		for name := range seat.(map[string]any) {
			if strings.EqualFold(name, "bid") {
				seat.(map[string]any)[name] = stay
			}
		}
		seats = append(seats, seat)
	}
	none := len(of) == 0 && (isList || get(body, "seatbid") == nil)
	return seats, leftOut, (none || len(seats) > 0) && reads(body, new(typedResponse))
}

// statusOf returns the statuscode that the bids' absence has in a merged response for a request, 0 if they are in it.
func statusOf(r reading, id, currency string) int {
	switch {
	case r.body == nil || !r.typed:
		return 102
	case !r.hasBid:
		nbr := get(r.body, "nbr")
		if nbr == nil {
			nbr = get(get(get(r.body, "openrtb"), "response"), "nbr")
		}
		if n, err := strconv.Atoi(fmt.Sprint(nbr)); err == nil && n >= 0 && n <= 17 {
			return n
		}
		return 100
	case r.version != 2 || get(r.body, "id") != any(id):
		return 102
	case currencyOf(r) != currency:
		return 300
	}
	return 0
}

// ownBid is the bid of the SSP beside the sampled one, and decodedOwnBid its form in a merged response.
var (
	ownBid        = map[string]any{"id": "b", "impid": "1", "price": 1}
	decodedOwnBid = map[string]any{"id": "b", "impid": "1", "price": json.Number("1")}
)

// compareResponses finds the bids of every response, and merges them with those of another SSP into a response that
// encoding/json reads.
func compareResponses(t *testing.T, samples []sample) {
	// bidder has a bid in the request's first currency.
	bidder := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			ID  string
			Cur []string
		}
		err := json.NewDecoder(r.Body).Decode(&q)
		if err != nil {
			t.Error(err)
		}
		bid := map[string]any{"id": q.ID, "seatbid": []any{map[string]any{"seat": "bidder", "bid": []any{ownBid}}}}
		if len(q.Cur) > 0 {
			bid["cur"] = q.Cur[0]
		}
		json.NewEncoder(w).Encode(bid)
	}))
	defer bidder.Close()
	sampled := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.URL.Query().Get("n"))
		if err != nil {
			t.Error(err)
		}
		w.Write(samples[n].Response)
	}))
	defer sampled.Close()
	ab := e2e.Start(t, fmt.Sprintf(`
ssps:
  - {name: bidder, endpoints: [%q]}
  - {name: sampled, endpoints: [%q], breaker: {enabled: false}}
routes:
  - {name: merged, match: {path: /merged}, mode: parallel-all, merge: openrtb, ssps: [bidder, sampled]}
`, bidder.URL, sampled.URL))
	client := ab.Dial()
	seen, merged, refused, leftOut, typed := map[string]bool{}, 0, 0, 0, 0
	for n := range samples {
		s := &samples[n]
		id, isText := decoded(s.Request)["id"].(string)
		if s.Response == nil || seen[string(s.Request)+string(s.Response)] {
			continue
		}
		seen[string(s.Request)+string(s.Response)] = true
		r := read(s.Response)
		request := s.Request
		if !isText { // of OpenRTB 3, or a body of another kind
			id, _ = get(r.body, "id").(string)
			request, _ = json.Marshal(map[string]any{"id": id, "imp": []any{map[string]any{"id": "1"}}})
		}
		currency := "USD"
		if cur, _ := decoded(request)["cur"].([]any); len(cur) > 0 {
			currency, _ = cur[0].(string)
		}
		var f openrtb.Facts
		if got := openrtb.ReadBidResponse(s.Response, &f); got.HasBid != r.hasBid {
			t.Errorf("%s: it has a bid: %v, want %v", s.Source, got.HasBid, r.hasBid)
		}
		a := client.Do("POST", fmt.Sprintf("/merged?n=%d", n), string(request), "Content-Type: application/json")
		status := statusOf(r, id, currency)
		if status == 0 {
			merged++
			leftOut += len(r.leftOut)
		} else {
			refused++
			if r.hasBid && r.version == 2 && !r.typed {
				typed++
			}
		}
		compareMerged(t, s, a.Body, request, id, currency, r, status)
	}
	t.Logf("%d merged without %d of their bids, %d left out, of them %d for the type of a member", merged, leftOut, refused, typed)
	testsupport.True(t, merged >= 100 && refused >= 100, "the samples prove little")
}

// compareMerged compares a merged response with one that is put together here.
func compareMerged(t *testing.T, s *sample, body string, request []byte, id, currency string, r reading, status int) {
	t.Helper()
	seats := []any{map[string]any{"seat": "bidder", "bid": []any{decodedOwnBid}}}
	without := []any{}
	if status == 0 {
		seats = append(seats, r.seats...)
		nonBids, unknown := []any{}, false
		for _, imp := range r.leftOut {
			if imp == nil {
				unknown = true
			} else {
				nonBids = append(nonBids, map[string]any{"impid": imp, "statuscode": json.Number("102")})
			}
		}
		if unknown {
			nonBids = append(nonBids, map[string]any{"statuscode": json.Number("102")})
		}
		if len(nonBids) > 0 {
			without = append(without, map[string]any{"seat": "sampled", "nonbid": nonBids})
		}
	} else {
		nonBids := []any{}
		for _, imp := range members(decoded(request), []string{"imp", "*", "id"}) {
			nonBids = append(nonBids, map[string]any{"impid": imp, "statuscode": json.Number(strconv.Itoa(status))})
		}
		without = append(without, map[string]any{"seat": "sampled", "nonbid": nonBids})
	}
	want := map[string]any{"id": id, "cur": currency, "seatbid": seats, "ext": map[string]any{"seatnonbid": without}}
	if got := decoded([]byte(body)); !reflect.DeepEqual(got, want) {
		t.Errorf("%s: the merged response is\n%s\nwant\n%v", s.Source, body, want)
	}
}
