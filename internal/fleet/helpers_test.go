package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"adbuffer/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait; it passes only when something is broken.
const patience = 60 * time.Second

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// member is one replica.
type member struct {
	*Fleet
	*Bucket
	log  *observer.ObservedLogs
	sent atomic.Int64
}

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

// socket is how s is reached.
func socket(s *redistest.Server) Redis { return Redis{Network: "unix", Address: s.Socket} }

func (m *member) connected() bool { return m.Connected(m.Since(time.Now())) }

func (m *member) awaitConnected(t testing.TB, want bool) {
	t.Helper()
	eventually(t, "connected", func() bool { return m.connected() == want })
}

// take takes one token now.
func (m *member) take() bool {
	ok := m.Take(m.Since(time.Now()))
	if ok {
		m.sent.Add(1)
	}
	return ok
}

// load is requests of a replica that go on beside a test.
type load struct {
	stopped atomic.Bool
	wg      sync.WaitGroup
}

// startLoad makes requests at a rate a second until stop.
func (m *member) startLoad(t testing.TB, rate float64) *load {
	l := new(load)
	l.wg.Go(func() {
		began := time.Now()
		for asked := 0; !l.stopped.Load(); time.Sleep(time.Millisecond) {
			for due := int(rate * time.Since(began).Seconds()); asked < due; asked++ {
				m.take()
			}
		}
	})
	t.Cleanup(l.stop)
	return l
}

func (l *load) stop() {
	l.stopped.Store(true)
	l.wg.Wait()
}
