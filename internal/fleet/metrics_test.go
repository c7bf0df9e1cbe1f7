package fleet

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"adbuffer/internal/testsupport"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := testsupport.StartRedis(t)
	m := join(t, socket(s), limit, burst)
	m.awaitConnected(t, true)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(NewCollector(func() *Fleet { return m.Fleet }))
	problems, err := testutil.GatherAndLint(reg)
	testsupport.True(t, err == nil && len(problems) == 0, "%v %v", err, problems)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP adbuffer_qps_fleet_connected 1 while requests to an SSP take tokens leased from Redis, 0 while this replica continues alone at its last share. SSPs with qps.scope fleet only.
# TYPE adbuffer_qps_fleet_connected gauge
adbuffer_qps_fleet_connected{ssp="openx"} 1
# HELP adbuffer_qps_replicas Replicas that share an SSP's limit, this one included, as last read from Redis; 0 before the first read. SSPs with qps.scope fleet only.
# TYPE adbuffer_qps_replicas gauge
adbuffer_qps_replicas{ssp="openx"} 1
# HELP adbuffer_qps_share Requests a second that this replica may send to an SSP while Redis is away: its own rate, and its part of the rate that no replica uses. SSPs with qps.scope fleet only.
# TYPE adbuffer_qps_share gauge
adbuffer_qps_share{ssp="openx"} 2000
`), "adbuffer_qps_fleet_connected", "adbuffer_qps_replicas", "adbuffer_qps_share"); err != nil {
		t.Error(err)
	}
	m.Keep(nil)
	if n, err := testutil.GatherAndCount(reg); err != nil || n != 0 {
		t.Errorf("%d series of an SSP that is gone: %v", n, err)
	}
	none := prometheus.NewPedanticRegistry()
	none.MustRegister(NewCollector(func() *Fleet { return nil }))
	if n, err := testutil.GatherAndCount(none); err != nil || n != 0 {
		t.Errorf("%d series without a fleet: %v", n, err)
	}
}
