package sspsim

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

func TestATenthOfTheSegmentsIsFilledOften(t *testing.T) {
	var rates []float64
	good, goodSites := 0, map[string]int{}
	for i := range 10_000 {
		site := strconv.Itoa(i / 100)
		rate := FillRate(site, strconv.Itoa(i/10), strconv.Itoa(i))
		testsupport.True(t, rate > 0 && rate < 0.05 || rate >= 0.05 && rate <= 0.4, "segment %d has the rate %v", i, rate)
		if rates = append(rates, rate); rate >= 0.05 {
			good++
			goodSites[site]++
		}
	}
	slices.Sort(rates)
	testsupport.Between(t, good, 700, 1300, "%d of 10 000 segments are filled often")
	testsupport.Between(t, rates[4500], 0.0008, 0.00125, "the median of the others is %v")
	// Were sites alike, their good segments would have a variance of 9.
	squares := 0
	for _, n := range goodSites {
		squares += (n - 10) * (n - 10)
	}
	testsupport.AtLeast(t, (squares+100*(100-len(goodSites)))/100, 30, "the good segments of the sites have a variance of %d")
	testsupport.True(t, FillRate("a", "b") == FillRate("a", "b") && FillRate("a", "b") != FillRate("b", "a") && FillRate("ab", "c") != FillRate("a", "bc"),
		"a rate depends on something other than the values in their order")
}

func TestBidsDependOnTheSegment(t *testing.T) {
	c := dial(t, startWith(t, Behaviour{Response: Response{FillBy: []string{"site", "slot"}}}))
	for site, want := range map[string][2]int{"43": {80, 160}, "0": {0, 3}} {
		bids := 0
		for range 300 {
			c.send(fmt.Sprintf("GET /bid?slot=1&site=%s HTTP/1.1\r\nHost: ssp\r\n\r\n", site))
			if resp, _ := c.response("GET"); resp.StatusCode == 200 {
				bids++
			}
		}
		testsupport.Between(t, bids, want[0], want[1], "site %[2]s, whose rate is %[3]v: %[1]d bids of 300", site, FillRate(site, "1"))
	}
}

func TestRequestsOfASecondAreCounted(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) { // the clock begins at a whole second
		c := &conn{ssp: new(SSP)}
		for _, n := range []int{2, 5, 3} {
			for range n {
				c.beginLocked()
			}
			time.Sleep(time.Second)
		}
		testsupport.Equal(t, c.ssp.counters.MaxPerSecond, 5, "at most %d requests a second")
	})
}
