package app

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"adbuffer/internal/config"
	"adbuffer/internal/reload"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

func shared(address string) string {
	return fmt.Sprintf("fleet: {redis: {address: %q}, expected_replicas: 2}\n", address)
}

// A service that shares a limit leaves no goroutine behind: TestMain checks that.
func TestASharedLimitHoldsFromTheFirstRequestOn(t *testing.T) {
	a, r := sim(t, sspsim.Options{}), testsupport.StartRedis(t)
	s := setup{more: shared("unix:" + r.Socket), ssps: []string{at("a", a, "qps: {limit: 100, scope: fleet}")}, routes: []string{to("x", "a")}}
	v := run(t, s)
	v.want("/x", "a")
	v.wantMetric(`qps_fleet_connected{ssp="a"}`, "1")
	v.wantMetric(`qps_limited_total{ssp="a"}`, "0")
	s.ssps[0] = at("a", a, "qps: {limit: 50, scope: fleet}")
	if r := v.reload(s); len(r.Changes) != 1 || r.Changes[0].Effect != reload.InPlace {
		t.Errorf("the reload says %+v", r)
	}
	v.want("/x", "a")
	s.ssps[0] = at("a", a)
	v.reload(s)
	if n, err := testutil.GatherAndCount(v.app.registry, "adbuffer_qps_share"); err != nil || n != 0 {
		t.Errorf("%d series, and no shared limit: %v", n, err)
	}
}

// If a start fails while Redis hangs, it still ends, and leaves no goroutine.
func TestAStartThatFailsEndsTheFleet(t *testing.T) {
	hung, err := net.Listen("unix", filepath.Join(t.TempDir(), "hung.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg, _, err := config.Parse([]byte(shared("unix:"+hung.Addr().String())+fmt.Sprintf(`
server: {listen: %q}
ssps: [{name: a, endpoints: ["http://127.0.0.1:9/"], qps: {limit: 10, scope: fleet}}]
routes: [{name: r, match: {path: /}, ssps: [a]}]
`, taken.Addr())), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(cfg, zap.NewNop()); err == nil || !strings.Contains(err.Error(), "server.listen") {
		t.Errorf("got %v, want the address that is taken", err)
	}
}
