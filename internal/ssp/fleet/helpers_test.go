package fleet

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"adbuffer/internal/test/testsupport"
)

func TestMain(m *testing.M) { testsupport.Main(m) }

// member is one replica.
type member struct {
	*Fleet
	*Bucket
	log  *observer.ObservedLogs
	sent atomic.Int64

	mu    sync.Mutex // guards taken
	taken []token
}

// token is the time at which a token was taken: between before and after.
type token struct{ before, after time.Time }

// join starts a replica of a fleet with one SSP, on r.
func join(t testing.TB, r Redis, limit float64, burst int, change ...func(*Options)) *member {
	t.Helper()
	core, log := observer.New(zap.InfoLevel)
	o := Options{
		Redis: r, Prefix: "adbuffer", ExpectedReplicas: 4,
		LeaseInterval: 20 * time.Millisecond, ReplicaTimeout: 2 * time.Second, Log: zap.New(core),
	}
	for _, c := range change {
		c(&o)
	}
	f := New(o)
	m := &member{Fleet: f, Bucket: f.Bucket("openx", limit, burst), log: log}
	t.Cleanup(func() { f.Close(context.Background()) })
	return m
}

// stalledReplica is a ReplicaTimeout with which no call times out on a machine that stalls.
const stalledReplica = 20 * time.Second

// toleratesStalls is for tests in which no call may fail.
func toleratesStalls(o *Options) { o.ReplicaTimeout = stalledReplica }

// neverTimesOut is for tests in which no replica may time out.
func neverTimesOut(o *Options) { o.ReplicaTimeout = 10 * testsupport.Patience }

// socket returns the address of s.
func socket(s *testsupport.Redis) Redis { return Redis{Network: "unix", Address: s.Socket} }

func (m *member) connected() bool { return m.Connected(m.Since(time.Now())) }

func (m *member) awaitConnected(t testing.TB, want bool) {
	t.Helper()
	testsupport.Eventually(t, "connected", func() bool { return m.connected() == want })
}

// take takes one token now.
func (m *member) take() {
	before := time.Now()
	if m.Take(m.Since(before)) {
		after := time.Now()
		m.sent.Add(1)
		m.mu.Lock()
		m.taken = append(m.taken, token{before, after})
		m.mu.Unlock()
	}
}

// wantBound checks that no span of time has more tokens than allowed: rate per second, plus burst.
// The bound is twice as high if a replica was alone for a while. On a machine that stalls, any
// replica may be alone.
func wantBound(t testing.TB, rate, burst float64, all ...*member) {
	t.Helper()
	var taken []token
	once := burst
	for _, m := range all {
		if m.alone.Load() > 0 {
			burst = 2 * once
		}
		m.mu.Lock()
		taken = append(taken, m.taken...)
		m.mu.Unlock()
	}
	testsupport.MustTrue(t, len(taken) != 0, "no token was taken")
	slices.SortFunc(taken, func(a, b token) int { return a.before.Compare(b.before) })
	began, end := taken[0].before, taken[0].after
	low, worst := math.Inf(1), 0.0 // tokens so far minus the tokens that the rate allows
	for i, k := range taken {
		if k.after.After(end) {
			end = k.after
		}
		low = min(low, float64(i)-rate*k.before.Sub(began).Seconds())
		worst = max(worst, float64(i+1)-rate*end.Sub(began).Seconds()-low)
	}
	t.Logf("%d tokens in %v; at most %.1f beyond the rate", len(taken), end.Sub(began), worst)
	if worst > burst+0.01 { // tolerance for floats
		t.Errorf("a span of time has %.1f tokens beyond the rate of %v, want at most %v", worst, rate, burst)
	}
}

// sent returns how many tokens all have taken.
func sent(all []*member) (n float64) {
	for _, m := range all {
		n += float64(m.sent.Load())
	}
	return n
}

// crash ends a replica like a kill: its records stay in Redis.
func (m *member) crash() {
	m.Fleet.mu.Lock()
	m.closed = true
	m.Fleet.mu.Unlock()
	m.stop()
	<-m.stopped
}

// logged counts the log's lines with this message.
func (m *member) logged(message string) int {
	n := 0
	for _, e := range m.log.All() {
		if strings.Contains(e.Message, message) {
			n++
		}
	}
	return n
}

// startLoad makes requests at a rate per second until the end of the test, concurrent with it.
func (m *member) startLoad(t testing.TB, rate float64) {
	var stopped atomic.Bool
	var load sync.WaitGroup
	load.Go(func() {
		began := time.Now()
		for requested := 0; !stopped.Load(); time.Sleep(time.Millisecond) {
			for due := int(rate * time.Since(began).Seconds()); requested < due; requested++ {
				m.take()
			}
		}
	})
	t.Cleanup(func() {
		stopped.Store(true)
		load.Wait()
	})
}
