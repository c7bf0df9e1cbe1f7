package forwarding

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// granting is a consent string of @iabtcf/core: vendors 12 and 76 have consent for purposes 1, 2 and 7, and legitimate
// interest for 7 and 10.
const granting = "CQdjfYAQdjfYAAKABAENAwFgAMIAAAJAAAYgAmQAgAGABMAEyAEAAwAJgAAA"

// config/openrtb.yaml sends each bid request to the SSPs that its comments promise, and merges their bids.
func TestTheExampleExchangeAsksTheSSPsThatCanUseARequest(t *testing.T) {
	t.Parallel()
	ssps := map[string]*sspsim.SSP{}
	env := e2e.Patient()
	for _, name := range []string{"europe", "america", "display", "video", "contextual"} {
		ssps[name] = e2e.Healthy(t)
		env = append(env, "ADBUFFER_SSPS_"+strings.ToUpper(name)+"_ENDPOINTS_0="+ssps[name].URL())
	}
	ab := e2e.Serve(t, "../../../../config/openrtb.yaml", env...)
	for _, row := range []struct{ body, asked string }{
		{`{"id":"1","imp":[{"id":"1","banner":{}}],"device":{"geo":{"country":"AUT"}}}`, "contextual display europe"},
		{`{"id":"1","imp":[{"id":"1","video":{}},{"id":"2","banner":{}}],"device":{"geo":{"country":"USA"}},"regs":{"gdpr":0}}`, "america contextual display video"},
		{`{"id":"1","imp":[{"id":"1","video":{}}],"regs":{"coppa":1}}`, "contextual"},
		{`{"id":"1","imp":[{"id":"1","video":{}}],"regs":{"gdpr":1},"user":{"consent":"` + granting + `"},"device":{"geo":{"country":"DEU"}}}`, "europe"},
		{`{"id":"1","imp":[{"id":"1","video":{}}],"regs":{"gdpr":1},"user":{"consent":"C"},"device":{"geo":{"country":"DEU"}}}`, "contextual"},
		{`{"id":"1","imp":[{"id":"1","video":{}}],"regs":{"gdpr":1},"device":{"geo":{"country":"DEU"}}}`, "contextual"},
	} {
		before := map[string]int{}
		for name, s := range ssps {
			before[name] = len(s.Requests())
		}
		a := ab.Post("/openrtb2/auction", row.body).WantStatus(row.body, 200)
		var asked []string
		for name, s := range ssps {
			if len(s.Requests()) > before[name] {
				asked = append(asked, name)
			}
		}
		slices.Sort(asked)
		testsupport.Equal(t, strings.Join(asked, " "), row.asked, "%[2]s went to %[1]q", row.body)
		var merged struct {
			ID      string
			Seatbid []any
		}
		if err := json.Unmarshal([]byte(a.Body), &merged); err != nil || merged.ID != "1" || len(merged.Seatbid) != len(asked) {
			t.Errorf("%s: %v, the response is %s", row.body, err, a.Body)
		}
	}
	out, stderr, code := e2e.Run(t, nil, "explain", "--config", "../../../../config/openrtb.yaml", "--data", `{"id":"1","imp":[{"banner":{}}],"regs":{"gdpr":1},"user":{"consent":"`+granting+`"}}`, "/openrtb2/auction")
	const lack = "filtered  tcf must allow vendor 80, purposes [1 2] with consent, but vendor 80 has no consent\n"
	testsupport.True(t, code == 0 && strings.Contains(out, lack), "%d %s: no %s in\n%s", code, stderr, lack, out)
	ab.Post("/openrtb2/auction", `{"id":"1","regs":{"gdpr":1},"user":{"eids":[]},"device":{"ip":"203.0.113.7","ifa":"x"}}`).WantFill("contextual")
	testsupport.Equal(t, string(e2e.LastRequest(t, ssps["contextual"]).Body), `{"id":"1","regs":{"gdpr":1},"user":{},"device":{"ip":"203.0.113.0"},`+
		`"source":{"schain":{"ver":"1.0","complete":1,"nodes":[{"asi":"exchange.example","sid":"1234","hp":1}]}}}`, "without consent, the SSP got %s")
	ab.WantMetric(3, "adbuffer_requests_total", "route=no-consent", "outcome=fill")
	ab.WantMetric(4, "adbuffer_requests_total", "route=auction", "outcome=merged")
}
