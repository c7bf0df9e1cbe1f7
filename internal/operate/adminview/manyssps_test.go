//go:build !race

// These look at 200 SSPs for ten minutes, one look after the other. The race detector would make that take 20 s.

package adminview

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/test/testsupport"
)

// manySSPs are views of 200 SSPs after ten minutes, and their overview.
func manySSPs(t testing.TB) (*Views, func() any) {
	var ssps, names strings.Builder
	for i := range 200 {
		fmt.Fprintf(&ssps, "  - {name: exchange-number-%d, endpoints: [\"http://127.0.0.1:1/a\", \"http://127.0.0.1:2/a\"]}\n", i)
		fmt.Fprintf(&names, "exchange-number-%d, ", i)
	}
	versions := versionsOf(t, "ssps:\n"+ssps.String()+"routes: [{name: default, match: {path: /fillbuffer}, ssps: ["+names.String()+"]}]\n")
	v, now := New(versions, zap.NewNop()), time.Now()
	for range trendPoints * trendEvery {
		now = now.Add(historyStep)
		v.history.look(now, versions.Current().Parts, nil)
	}
	return v, func() any { return v.Overview(Service{}, nil, nil, proxy.Snapshot{}, Facts{}) }
}

func TestTheOverviewOf200SSPsIsSmall(t *testing.T) {
	testsupport.Long(t)
	_, overview := manySSPs(t)
	b, err := json.Marshal(overview())
	testsupport.NoError(t, err)
	// The bound leaves 26 KB for the reasons of 200 SSPs in trouble, and for larger numbers.
	if len(b) > 174_000 || strings.Count(string(b), `"trend":{"saturation":[0,0`) != 200 {
		t.Errorf("the overview has %d bytes", len(b))
	}
}

// BenchmarkOverviewOf200SSPs is one refresh of the page.
func BenchmarkOverviewOf200SSPs(b *testing.B) {
	_, overview := manySSPs(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := json.Marshal(overview()); err != nil {
			b.Fatal(err)
		}
	}
}
