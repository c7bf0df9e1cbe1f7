package manifesttest

import (
	"fmt"
	"testing"

	"adbuffer/internal/testsupport"
)

// The shipped examples have two regions. The far one gets no request while the near one works, and
// all of them while it does not.
func TestTheFarRegionServesWhileTheNearOneIsDown(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"adbuffer":     renderOverlay(t, overlaysDir+"/edge"),
		"ads-adbuffer": mustRenderChart(t, values(t, "testdata/values-default.yaml")),
	} {
		o := mustDecode(t, text)
		r := run(t, o, the(t, o, name), "ADBUFFER_SERVER_LISTEN=127.0.0.1:0", "ADBUFFER_DEADLINE_DEFAULT=2s")
		ad := func() bool { return isAd(get(t, "", "http://"+r.traffic+"/fillbuffer?pub=1")) }
		filled := func(s *simulated) float64 {
			return gauge(t, get(t, "", r.admin+"/metrics").body, fmt.Sprintf(`adbuffer_endpoint_requests_total{endpoint="%s",outcome="fill",ssp="openx"}`, s.addr))
		}
		if first, second := ad(), ad(); !first || !second || filled(r.near) != 2 || filled(r.far) != 0 {
			t.Fatalf("%s: the near region had %v of 2 requests, the far one %v", name, filled(r.near), filled(r.far))
		}
		testsupport.NoError(t, r.near.cmd.Process.Kill())
		<-r.near.ended
		testsupport.Eventually(t, "the far region serves", func() bool { return ad() && filled(r.far) > 0 })
		simulate(t, r.near.addr)
		testsupport.Eventually(t, "the near region serves again", func() bool { return ad() && filled(r.near) > 2 })
		if had := filled(r.far); !ad() || filled(r.far) != had {
			t.Errorf("%s: the far region still gets requests", name)
		}
	}
}
