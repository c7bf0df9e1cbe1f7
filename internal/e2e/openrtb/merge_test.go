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

	"adbuffer/internal/e2e"
	"adbuffer/internal/openrtb"
	"adbuffer/internal/testsupport"
)

func TestMain(m *testing.M) { e2e.Main(m) }

// reading is what encoding/json finds in an SSP's response.
type reading struct {
	hasBid  bool
	version int // of OpenRTB; 0 if it is no BidResponse
	body    map[string]any
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
	return r
}

// currencyOf returns the currency of bids.
func currencyOf(r reading) string {
	if cur, _ := get(r.body, "cur").(string); cur != "" {
		return cur
	}
	return "USD"
}

// statusOf returns the statuscode that the bids' absence has in a merged response for a request, 0 if they are in it.
func statusOf(r reading, id, currency string) int {
	switch {
	case r.body == nil:
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
		bid := map[string]any{"id": q.ID, "seatbid": []any{map[string]any{"seat": "bidder", "bid": []any{map[string]any{"id": "b"}}}}}
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
	seen, merged, refused := map[string]bool{}, 0, 0
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
		} else {
			refused++
		}
		compareMerged(t, s, a.Body, request, id, currency, r, status)
	}
	t.Logf("%d merged, %d left out", merged, refused)
	testsupport.True(t, merged >= 100 && refused >= 100, "the samples prove little")
}

// compareMerged compares a merged response with one that is put together here.
func compareMerged(t *testing.T, s *sample, body string, request []byte, id, currency string, r reading, status int) {
	t.Helper()
	seats := []any{map[string]any{"seat": "bidder", "bid": []any{map[string]any{"id": "b"}}}}
	without := []any{}
	if status == 0 {
		of, _ := get(r.body, "seatbid").([]any)
		seats = append(seats, of...)
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
