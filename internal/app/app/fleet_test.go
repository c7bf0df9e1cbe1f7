package app

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"adbuffer/internal/setup/config"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
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
	v.await("the replica is known, and has the whole limit", func() bool {
		return v.metric(`qps_replicas{ssp="a"}`) == "1" && v.metric(`qps_share{ssp="a"}`) == "100"
	})
	v.wantMetric(`qps_limited_total{ssp="a"}`, "0")
	s.ssps[0] = at("a", a, "qps: {limit: 50, scope: fleet}")
	v.reloadOne(s, config.InPlace)
	v.want("/x", "a")
	s.ssps[0] = at("a", a)
	v.reload(s)
	n, err := testutil.GatherAndCount(v.app.registry, "adbuffer_qps_share")
	testsupport.True(t, err == nil && n == 0, "%d series, and no shared limit: %v", n, err)
}

// Each key of the fleet must reach it. Package fleet tests the password and both certificates,
// TestTLSToRedisFollowsItsFiles the keys of TLS.
func TestTheKeysOfTheFleetReachIt(t *testing.T) {
	base := config.Fleet{
		Redis:  config.Redis{Address: "unix:/run/redis.sock", Username: "ads", DB: 1},
		Prefix: "adbuffer", ExpectedReplicas: 2, LeaseInterval: time.Millisecond, ReplicaTimeout: time.Second,
	}
	for name, edit := range map[string]func(*config.Fleet){
		"redis.address":     func(c *config.Fleet) { c.Redis.Address = "/run/redis.sock" },
		"redis.username":    func(c *config.Fleet) { c.Redis.Username = "other" },
		"redis.db":          func(c *config.Fleet) { c.Redis.DB = 2 },
		"prefix":            func(c *config.Fleet) { c.Prefix = "other" },
		"expected_replicas": func(c *config.Fleet) { c.ExpectedReplicas = 3 },
		"lease_interval":    func(c *config.Fleet) { c.LeaseInterval *= 2 },
		"replica_timeout":   func(c *config.Fleet) { c.ReplicaTimeout *= 2 },
	} {
		other := base
		edit(&other)
		testsupport.True(t, !reflect.DeepEqual(fleetOptions(&base), fleetOptions(&other)), "fleet.%s has no effect", name)
	}
}

// If a start fails while Redis hangs, it still ends, and leaves no goroutine.
func TestAStartThatFailsEndsTheFleet(t *testing.T) {
	hung, err := net.Listen("unix", filepath.Join(t.TempDir(), "hung.sock"))
	testsupport.NoError(t, err)
	defer hung.Close()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	testsupport.NoError(t, err)
	defer taken.Close()
	cfg, _, err := config.Parse([]byte(shared("unix:"+hung.Addr().String())+fmt.Sprintf(`
server: {listen: %q}
ssps: [{name: a, endpoints: ["http://127.0.0.1:9/"], qps: {limit: 10, scope: fleet}}]
routes: [{name: r, match: {path: /}, ssps: [a]}]
`, taken.Addr())), nil)
	testsupport.NoError(t, err)
	if _, err := New(cfg, zap.NewNop(), Process{}); err == nil || !strings.Contains(err.Error(), "server.listen") {
		t.Errorf("got %v, want the address that is taken", err)
	}
}

// A change of the file of authorities takes effect without a restart, so that adbuffer reaches a Redis with a
// certificate of another authority. Connecting to Redis does not read the files, so that an invalid version is still
// reported by the watch.
func TestTLSToRedisFollowsItsFiles(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.pem")
	var servers []tls.Certificate
	var authorities []*sspsim.CA
	for range 2 {
		authority, err := sspsim.NewCA()
		testsupport.NoError(t, err)
		server, err := authority.ServerCert("redis.test")
		testsupport.NoError(t, err)
		authorities, servers = append(authorities, authority), append(servers, server)
	}
	write := func(authority *sspsim.CA) {
		t.Helper()
		next := ca + ".next"
		testsupport.NoError(t, errors.Join(authority.WriteFile(next), os.Rename(next, ca)))
	}
	write(authorities[0])
	redis := config.Redis{Address: "redis.test:6379", TLS: config.RedisTLS{Enabled: true, ClientTLS: config.ClientTLS{CAFile: ca}}}
	files, keeper, err := redisTLS(&redis)
	testsupport.NoError(t, err)
	handshake := func(server tls.Certificate) error {
		t.Helper()
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{server}})
		testsupport.NoError(t, err)
		defer l.Close()
		go func() {
			if c, err := l.Accept(); err == nil {
				io.Copy(io.Discard, c)
				c.Close()
			}
		}()
		conn, err := tls.Dial("tcp", l.Addr().String(), files())
		if err == nil {
			conn.Close()
		}
		return err
	}
	testsupport.NoError(t, handshake(servers[0]))
	testsupport.True(t, handshake(servers[1]) != nil, "a certificate of an unknown authority is accepted")
	testsupport.NoError(t, os.WriteFile(ca, []byte("broken"), 0o600))
	testsupport.NoError(t, handshake(servers[0]))
	_, err = keeper.Check()
	testsupport.True(t, err != nil, "a broken file of authorities is not reported")
	write(authorities[1])
	_, err = keeper.Check()
	testsupport.NoError(t, err)
	if err := handshake(servers[1]); err != nil {
		t.Errorf("after a change of the authorities: %v", err)
	}
	testsupport.True(t, handshake(servers[0]) != nil, "a certificate of the previous authority is accepted")
	redis.TLS.InsecureSkipVerify = true
	files, _, err = redisTLS(&redis)
	testsupport.NoError(t, err)
	if err := handshake(servers[0]); err != nil {
		t.Errorf("with insecure_skip_verify: %v", err)
	}
}
