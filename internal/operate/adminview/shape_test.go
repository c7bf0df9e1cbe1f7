package adminview

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/ssp/shaper"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/testsupport"
)

func TestTheSentenceAboutAShaper(t *testing.T) {
	t.Parallel()
	recent := shaper.Window{Time: 10 * time.Minute, Arrivals: 1.2e6, Dropped: 1.05e6}
	hour := shaper.Window{Arrivals: 7.2e6, Dropped: 6.264e6, Low: 0.0491, Estimate: 0.0712, High: 0.0998}
	for _, tt := range []struct {
		report   shaper.Report
		enforced bool
		want     string
	}{
		{shaper.Report{State: shaper.Learning, TenMinutes: recent, Hour: hour}, true,
			"qps.shape drops 1750 of 2000/s; lost 7.1 % of the fills (4.9 to 10.0) in the last hour; at random 87 %"},
		{shaper.Report{State: shaper.Learning, TenMinutes: recent, Hour: hour}, false,
			"A dry run of qps.shape would drop 1750 of 2000/s; it would have lost 7.1 % of the fills (4.9 to 10.0) in the last hour; at random 87 %"},
		{shaper.Report{State: shaper.Learning, TenMinutes: shaper.Window{Time: 20 * time.Second, Arrivals: 30}}, false,
			"A dry run of qps.shape would drop 0 of 1.5/s; it would have lost no fill in the last hour"},
		{shaper.Report{State: shaper.Cold, TenMinutes: recent}, true,
			"qps.shape drops 1750 of 2000/s; it has seen fewer than 100 fills, so the loss is not known yet"},
		{shaper.Report{State: shaper.Paused, Paused: true, TenMinutes: shaper.Window{Time: 20 * time.Second, Arrivals: 30}}, true,
			"qps.shape drops 0 of 1.5/s; it has lost no fill in the last hour; no-bids teach it nothing until the next fill, since the SSP gave no fill where 20 were expected"},
	} {
		testsupport.Equal(t, shapeText(&tt.report, tt.enforced), tt.want, "%s")
	}
}

func TestExplainSaysWhatAShaperKnows(t *testing.T) {
	t.Parallel()
	keys := []ssp.ShapedKey{{Name: "header:X-Country", Value: "DE"}, {Name: "query:token", Value: "s3cret"}, {Name: "openrtb:/imp/0/banner/w"}}
	known := shaper.Prefix{Known: true, Sent: 1200, Fills: 31, Worth: 1, Mean: 0.0257}
	got := strings.Join(shapingOf(&ssp.Shaping{Keys: keys, Enforced: true, Explanation: shaper.Explanation{
		Prefixes: []shaper.Prefix{known, {Worth: 0.5, Mean: 0.0128}}, Score: 0.0128, Threshold: 0.02, Explore: 0.031,
	}}), "\n")
	testsupport.Equal(t, got, `header:X-Country is DE: 1200 outcomes (N), 31 fills (F), young values fill 1 times as often as their parents (ρ), rate of fills 0.0257 (p)
query:token is (hidden): not known yet, young values fill 0.5 times as often as their parents (ρ), rate of fills 0.0128 (p)
openrtb:/imp/0/banner/w is missing: not counted, since nothing is known of the values before it
score 0.0128, threshold 0.02: dropped, unless explored with probability 0.031`, "%s")
	for want, s := range map[string]*ssp.Shaping{
		"score 0.03, threshold 0.02: passes": {Enforced: true, Explanation: shaper.Explanation{Score: 0.03, Threshold: 0.02, Chance: 1, Explore: 0.03}},
		"score 0.019, threshold 0.02: passes with probability 0.45, otherwise dropped, unless explored with probability 0.03": {
			Enforced: true, Explanation: shaper.Explanation{Score: 0.019, Threshold: 0.02, Chance: 0.45, Explore: 0.03}},
		"score 0.019, threshold 0.02: without dry_run passes with probability 0.45, otherwise dropped, unless explored with probability 0.03": {
			Explanation: shaper.Explanation{Score: 0.019, Threshold: 0.02, Chance: 0.45, Explore: 0.03}},
		"score 0.01, threshold 0.02: without dry_run dropped, unless explored with probability 0.03": {Explanation: shaper.Explanation{Score: 0.01, Threshold: 0.02, Explore: 0.03}},
	} {
		testsupport.Equal(t, strings.Join(shapingOf(s), "\n"), want, "%s")
	}
}

// While a shaper is cold, the loss is absent. Otherwise it is there, however small it is.
func TestTheViewOfAShaperHasTheLossUnlessItIsCold(t *testing.T) {
	t.Parallel()
	r := shaper.Report{State: shaper.Cold}
	lossOf := func() string {
		b, err := json.Marshal(viewOf(&r, true))
		testsupport.NoError(t, err)
		_, text, _ := strings.Cut(string(b), `"state":`)
		text, _, _ = strings.Cut(text, `,"threshold"`)
		return text
	}
	testsupport.Equal(t, lossOf(), `"cold"`, "%s")
	r.State = shaper.Learning
	r.Hour.Estimate, r.Hour.High, r.TenMinutes.Low = 0.0004, 0.00123456, 0.25
	testsupport.Equal(t, lossOf(), `"learning","loss_low":0,"loss":0.0004,"loss_high":0.00123456,"ten_minutes":{"loss_low":0.25,"loss":0,"loss_high":0}`, "%s")
}
