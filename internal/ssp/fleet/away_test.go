package fleet

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"crypto/x509"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// awaitAway waits until all replicas run alone. It checks that they use their last shares, and that
// the log reports it once; before is the number of earlier log lines.
func awaitAway(t *testing.T, all []*member, before []int) {
	t.Helper()
	for _, m := range all {
		m.awaitConnected(t, false)
	}
	began := time.Now() // before the tokens are counted, so that a stall between the two adds no token
	had := sent(all)
	shares := 0.0
	for _, m := range all {
		shares += m.Share()
		n := m.sent.Load()
		testsupport.Eventually(t, "the load continues", func() bool { return m.sent.Load() > n+100 })
	}
	time.Sleep(500 * time.Millisecond)
	n, took := sent(all)-had, time.Since(began).Seconds()
	testsupport.AtMost(t, n, shares*took+burst+3, "%v sent in %.2f s, at shares of %.0f a second", took, shares)
	testsupport.Between(t, shares, 0.9*limit, 1.1*limit, "shares of %.0f a second together, want %v", limit)
	for i, m := range all {
		n := m.logged("Redis is away")
		testsupport.True(t, n >= 1 && n <= before[i]+1, "replica %d has logged %d times that Redis is away: %v", i, n, m.log.All())
	}
}

func awaitBack(t *testing.T, all []*member) {
	t.Helper()
	for i, m := range all {
		m.awaitConnected(t, true)
		testsupport.Eventually(t, "the log says so", func() bool { return m.logged("Redis is back") == m.logged("Redis is away") })
		testsupport.True(t, m.failures.Load() != 0, "replica %d has counted no failure", i)
	}
	awaitReplicas(t, all, 3)
}

func busyThree(t *testing.T, s *testsupport.Redis) []*member {
	t.Helper()
	all := three(t, s, limit, burst, 0)
	startLoads(t, all, 2*limit)
	time.Sleep(500 * time.Millisecond) // traffic from which the shares are computed
	return all
}

func TestReplicasWithoutRedisContinueAtTheirLastShares(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ leave, comeBack func(s *testsupport.Redis) }{
		"killed, and started again with no data": {(*testsupport.Redis).Kill, (*testsupport.Redis).Restart},
		"accepts and never responds":             {(*testsupport.Redis).Pause, (*testsupport.Redis).Resume},
		"takes no writes": {
			func(s *testsupport.Redis) { s.Do("REPLICAOF", "127.0.0.1", "1") }, func(s *testsupport.Redis) { s.Do("REPLICAOF", "NO", "ONE") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testsupport.StartRedis(t)
			all := busyThree(t, s)
			var before []int
			for _, m := range all {
				before = append(before, m.logged("Redis is away")) // a machine that stalls may already have logged it
			}
			c.leave(s)
			awaitAway(t, all, before)
			c.comeBack(s)
			awaitBack(t, all)
			time.Sleep(200 * time.Millisecond)
			wantBound(t, limit, burst, all...)
		})
	}
}

// Redis that comes and goes is logged as away once: it is back when all calls have succeeded for a second.
func TestRedisIsBackOnceAllCallsHaveSucceededForASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, log := observer.New(zap.InfoLevel)
		m := &member{Fleet: &Fleet{opts: Options{Log: zap.New(core)}}, log: log}
		var l connState
		fails := errors.New("connection refused")
		m.logChange(&l, fails)
		m.logChange(&l, nil)
		time.Sleep(900 * time.Millisecond)
		m.logChange(&l, fails) // the second begins again
		m.logChange(&l, nil)
		time.Sleep(999 * time.Millisecond)
		m.logChange(&l, nil)
		testsupport.Equal(t, m.logged("Redis is back"), 0, "after 999 ms, logged %d times that Redis is back")
		time.Sleep(time.Millisecond)
		m.logChange(&l, nil)
		m.logChange(&l, nil)
		testsupport.Equal(t, m.logged("Redis is away"), 1, "logged %d times that Redis is away")
		testsupport.Equal(t, m.logged("Redis is back"), 1, "after a second, logged %d times that Redis is back")
		for _, ms := range []time.Duration{50, 100, 200, 400, 800, 1000, 1000} {
			m.logChange(&l, fails)
			testsupport.Equal(t, l.backoff, ms*time.Millisecond, "the next call is in %v")
		}
	})
}

// A replica that cannot reach Redis may be alive, and send at its share. Until it has timed out,
// that share stays reserved for it.
func TestDisconnectedReplicaCountsUntilItTimesOut(t *testing.T) {
	t.Parallel()
	s := testsupport.StartRedis(t)
	all := three(t, s, limit, burst, 2*limit, neverTimesOut) // with a load, replicas call often
	time.Sleep(500 * time.Millisecond)
	all[2].crash() // its calls end, and its requests continue
	all[2].awaitConnected(t, false)
	n := all[2].sent.Load()
	testsupport.Eventually(t, "the load continues", func() bool { return float64(all[2].sent.Load()-n) > all[2].Share() })
	testsupport.Equal(t, all[0].replicas.Load(), 3, "%d replicas are known")
	wantBound(t, limit, burst, all...)
}

// Redis hangs, and later responds out of order to the calls that waited. Those late grants are
// ignored, and change no valid lease.
func TestLateCallsAreIgnored(t *testing.T) {
	t.Parallel()
	s := testsupport.StartRedis(t)
	m := join(t, socket(s), limit, burst)
	m.awaitConnected(t, true)
	m.crash() // from here on the test itself calls
	conn, err := m.open(t.Context())
	testsupport.NoError(t, err)
	defer conn.close()
	a := m.nextCall(m.Since(time.Now()), &m.opts)
	a.number = m.calls + 1
	call := func() error {
		_, errs, err := conn.pipeline(t.Context(), []command{{"EVALSHA", append([]any{leaseSHA}, m.arguments(&a)...)}})
		testsupport.NoError(t, err)
		return errs[0]
	}
	testsupport.NoError(t, call())
	if err := call(); err == nil || err.Error() != "STALE a later call was here first" {
		t.Errorf("the repeated call: %v", err)
	}
}

func TestReplicasRestoreWhatRedisForgot(t *testing.T) {
	t.Parallel()
	s := testsupport.StartRedis(t)
	all := busyThree(t, s)
	for range 20 {
		s.Do("SCRIPT", "FLUSH")
		time.Sleep(10 * time.Millisecond)
	}
	for _, m := range all {
		for _, e := range m.log.All() {
			testsupport.True(t, !strings.Contains(fmt.Sprint(e.ContextMap()), "NOSCRIPT"), "a call failed since the script was not known: %v", e)
		}
	}
	for range 5 { // the data too: known replicas reserve their shares until all are back
		s.Do("FLUSHALL")
		time.Sleep(100 * time.Millisecond)
	}
	awaitReplicas(t, all, 3)
	wantBound(t, limit, 2*burst, all...) // with the tokens that they held
}

// Replicas recover after Redis' clock was set back, and after another program has written their
// key.
func TestTimesInTheFutureHeal(t *testing.T) {
	t.Parallel()
	s := testsupport.StartRedis(t)
	m := join(t, socket(s), limit, burst)
	m.awaitConnected(t, true)
	future := "99999999999999.000"
	s.Do("HSET", "adbuffer:qps:openx", "bucket", "5 "+future+" 1000000 "+future+" 0", "feedfeedfeedfeed", "7 "+future+" "+future+" 3 0 1 1 0")
	m.startLoad(t, 2*limit)
	testsupport.Eventually(t, "the other is known", func() bool { return m.replicas.Load() == 2 })
	testsupport.Eventually(t, "and has timed out", func() bool { return m.replicas.Load() == 1 })
	n := m.sent.Load()
	testsupport.Eventually(t, "tokens flow", func() bool { return m.sent.Load() > n+limit })
}

func TestKeyOfAnotherTypeFailsUntilItIsRemoved(t *testing.T) {
	t.Parallel()
	s := testsupport.StartRedis(t)
	s.Do("SET", "adbuffer:qps:openx", "another type")
	m := join(t, socket(s), limit, burst)
	testsupport.Eventually(t, "it fails", func() bool { return m.failures.Load() > 1 })
	testsupport.Equal(t, m.logged("no lease for an SSP"), 1, "logged %d times")
	s.Do("DEL", "adbuffer:qps:openx")
	m.awaitConnected(t, true)
}

// An SSP whose key cannot be used does not affect other SSPs.
func TestSSPWithoutALeaseDoesNotAffectOtherSSPs(t *testing.T) {
	t.Parallel()
	s := testsupport.StartRedis(t)
	m := join(t, socket(s), limit, burst, toleratesStalls)
	m.awaitConnected(t, true)
	s.Do("SET", "adbuffer:qps:broken", "another type")
	broken := m.Fleet.Bucket("broken", limit, burst)
	m.startLoad(t, limit/10)
	testsupport.Eventually(t, "its calls fail", func() bool { broken.Has(0); return broken.failures.Load() > 5 })
	n := m.failures.Load()
	testsupport.True(t, n == 0 && m.connected() && !broken.Connected(broken.Since(time.Now())), "%d calls for the other failed", n)
	a, b := m.logged("no lease for an SSP"), m.logged("Redis is away")
	testsupport.True(t, a == 1 && b == 0, "logged %d and %d times: %v", a, b, m.log.All())
	s.Do("DEL", "adbuffer:qps:broken")
	testsupport.Eventually(t, "it is back", func() bool { broken.Has(0); return broken.Connected(broken.Since(time.Now())) })
}

// A reload removes an SSP whose key in Redis has another type. The replica must not keep trying to remove
// its record from that key, or report that Redis is away.
func TestRemovedSSPWithoutALeaseDoesNotAffectOtherSSPs(t *testing.T) {
	t.Parallel()
	s := testsupport.StartRedis(t)
	s.Do("SET", "adbuffer:qps:broken", "another type")
	m := join(t, socket(s), limit, burst, toleratesStalls)
	broken := m.Fleet.Bucket("broken", limit, burst)
	testsupport.Eventually(t, "its call fails", func() bool { return broken.failures.Load() > 0 })
	m.awaitConnected(t, true)
	m.Keep(map[string]bool{"openx": true})
	m.startLoad(t, 2*limit)
	testsupport.Eventually(t, "requests continue", func() bool { return m.sent.Load() > limit })
	a, b := m.failures.Load(), m.logged("Redis is away")
	testsupport.True(t, a == 0 && b == 0, "%d calls failed, and the log reported %d times that Redis is away", a, b)
}

// Before its first contact with Redis a replica sends limit / ExpectedReplicas.
func TestReplicaThatNeverReachedRedisUsesItsExpectedShare(t *testing.T) {
	t.Parallel()
	m := join(t, Redis{Network: "unix", Address: filepath.Join(t.TempDir(), "absent.sock")}, limit, burst)
	m.AwaitFirst(t.Context())
	testsupport.True(t, m.failures.Load() != 0 && !m.connected(), "the replica reports that it is connected, but there is no Redis")
	testsupport.Equal(t, m.Share(), limit/4, "its share is %v, want a fourth of %v", limit)
	m.startLoad(t, 2*limit)
	testsupport.Eventually(t, "it sends", func() bool { return m.sent.Load() > 2*burst })
	wantBound(t, limit/4, burst/8, m) // twice, since it is alone
}

// A server that accepts connections and never responds delays neither requests nor start nor drain.
func TestHangingServerDelaysNoRequest(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "hung.sock"))
	testsupport.NoError(t, err)
	defer l.Close()
	m := join(t, Redis{Network: "unix", Address: l.Addr().String()}, limit, burst)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	m.AwaitFirst(ctx) // the test hangs if this does not return
	m.startLoad(t, 2*limit)
	testsupport.Eventually(t, "requests are served during the hang", func() bool { return m.sent.Load() > 10 })
	testsupport.Eventually(t, "requests are served during the hang", func() bool { return m.failures.Load() > 0 })
	m.Close(t.Context())
}

func TestLoginIsAsConfiguredAndMayChange(t *testing.T) {
	t.Parallel()
	s := testsupport.StartRedis(t, "--user", "default", "off", "--user", "adbuffer", "on", ">secret", "~adbuffer:*", "+@all")
	r := socket(s)
	r.Username, r.DB = "adbuffer", 3
	m := join(t, r, limit, burst)
	m.SetPassword("wrong")
	testsupport.Eventually(t, "it is refused", func() bool { return m.failures.Load() > 1 })
	testsupport.True(t, !m.connected(), "connected with a wrong password")
	m.SetPassword("secret")
	m.awaitConnected(t, true)
}

// Redis' error for a lease without a login is "unauthenticated multibulk length".
func TestMissingPasswordIsNamed(t *testing.T) {
	t.Parallel()
	r := socket(testsupport.StartRedis(t, "--requirepass", "secret"))
	for password, want := range map[string]string{"": "NOAUTH", "wrong": "WRONGPASS"} {
		if _, err := r.open(t.Context(), password); err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "; see fleet.redis.password_file") {
			t.Errorf("with the password %q the error is %v", password, err)
		}
	}
}

func TestTLSWithBothCertificates(t *testing.T) {
	t.Parallel()
	ca, err := sspsim.NewCA()
	testsupport.NoError(t, err)
	dir := t.TempDir()
	server, err := ca.ServerCert("redis.test")
	testsupport.NoError(t, err)
	client, err := ca.ClientCert("adbuffer")
	testsupport.NoError(t, err)
	key, err := x509.MarshalPKCS8PrivateKey(server.PrivateKey)
	testsupport.NoError(t, err)
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		testsupport.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return file
	}
	caFile := filepath.Join(dir, "ca.pem")
	testsupport.NoError(t, ca.WriteFile(caFile))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testsupport.NoError(t, err)
	addr := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	testsupport.StartRedis(t, "--tls-port", port, "--tls-cert-file", write("cert.pem", "CERTIFICATE", server.Certificate[0]),
		"--tls-key-file", write("key.pem", "PRIVATE KEY", key), "--tls-ca-cert-file", caFile)
	config := &tls.Config{RootCAs: ca.Pool(), ServerName: "redis.test"}
	r := Redis{Network: "tcp", Address: addr, TLS: func() *tls.Config { return config }}
	without := join(t, r, limit, burst)
	testsupport.Eventually(t, "a replica without a certificate is refused", func() bool { return without.failures.Load() > 0 })
	withOne := config.Clone()
	withOne.Certificates = []tls.Certificate{client}
	r.TLS = func() *tls.Config { return withOne }
	join(t, r, limit, burst).awaitConnected(t, true)
}

func TestALongChainOfCertificatesIsRefused(t *testing.T) {
	t.Parallel()
	cert := testsupport.Certificate("redis.test")
	roots := testsupport.Roots(cert)
	cert.Certificate = slices.Repeat(cert.Certificate, 11)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	testsupport.NoError(t, err)
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err == nil {
			c.(*tls.Conn).Handshake()
			c.Close()
		}
	}()
	r := Redis{Network: "tcp", Address: l.Addr().String(), TLS: func() *tls.Config {
		return &tls.Config{RootCAs: roots, ServerName: "redis.test"}
	}}
	_, err = r.open(t.Context(), "")
	testsupport.True(t, err != nil && strings.Contains(err.Error(), "TLS: ") && strings.Contains(err.Error(), "sent 11 certificates"), "%v", err)
}
