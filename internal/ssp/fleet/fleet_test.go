package fleet

import (
	"fmt"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

const limit, burst = 2000.0, 200

// three starts three replicas with a load each, 0 for none, and waits until all are known.
func three(t *testing.T, s *testsupport.Redis, limit float64, burst int, rate float64, change ...func(*Options)) (all []*member) {
	t.Helper()
	for range 3 {
		m := join(t, socket(s), limit, burst, change...)
		if rate > 0 {
			m.startLoad(t, rate)
		}
		all = append(all, m)
	}
	awaitReplicas(t, all, 3)
	return all
}

// awaitReplicas waits until each of all knows n replicas, and is connected.
func awaitReplicas(t *testing.T, all []*member, n int64) {
	t.Helper()
	for _, m := range all {
		testsupport.Eventually(t, fmt.Sprint(n, " replicas are known"), func() bool { return m.replicas.Load() == n && m.connected() })
	}
}

func startLoads(t *testing.T, all []*member, rate float64) {
	for _, m := range all {
		m.startLoad(t, rate)
	}
}

func TestReplicasUnderOverloadShareTheLimitEvenly(t *testing.T) {
	t.Parallel()
	all := three(t, testsupport.StartRedis(t), limit, burst, 0)
	began := time.Now()
	startLoads(t, all, 2*limit)
	time.Sleep(2 * time.Second)
	n, took := sent(all), time.Since(began)
	t.Logf("%v sent in %v, of %v", n, took, limit*took.Seconds()+burst)
	wantBound(t, limit, burst, all...)
	for i, m := range all {
		// An even part is a third; a machine that stalls may take some from one replica.
		part := float64(m.sent.Load()) / n
		testsupport.True(t, part >= 0.2 && part <= 0.5, "replica %d has sent %.2f of all", i, part)
	}
}

func TestGreedyReplicaDoesNotStarveOthers(t *testing.T) {
	t.Parallel()
	all := three(t, testsupport.StartRedis(t), limit, burst, 0)
	all[0].startLoad(t, 10*limit)
	startLoads(t, all[1:], limit/10)
	time.Sleep(2 * time.Second)
	wantBound(t, limit, burst, all...)
	for i, m := range all[1:] {
		requested := float64(m.sent.Load()) + float64(m.refused.Load())
		t.Logf("replica %d got %.3f of the tokens that it requested", i+1, float64(m.sent.Load())/requested)
		part := float64(m.sent.Load()) / requested
		testsupport.True(t, part >= 0.5, "replica %d, with a tenth of the limit, got %.2f of it", i+1, part)
	}
	// The greedy replica gets the tokens that the others do not use: more than a third.
	n := sent(all)
	testsupport.True(t, float64(all[0].sent.Load()) >= 0.4*n, "the greedy replica has sent %d of %v", all[0].sent.Load(), n)
}

// A replica that calls more often than the others gets no more tokens.
func TestMoreFrequentCallsGetNoMoreTokens(t *testing.T) {
	t.Parallel()
	s := testsupport.StartRedis(t)
	often := join(t, socket(s), limit, burst, func(o *Options) { o.LeaseInterval = 5 * time.Millisecond })
	seldom := join(t, socket(s), limit, burst, func(o *Options) { o.LeaseInterval = 30 * time.Millisecond })
	all := []*member{often, seldom}
	startLoads(t, all, 4*limit)
	time.Sleep(2 * time.Second)
	wantBound(t, limit, burst, all...)
	if part := float64(seldom.sent.Load()) / sent(all); part < 0.25 {
		t.Errorf("the replica that calls a sixth as often got %.2f of all tokens", part)
	} else {
		t.Logf("the replica that calls a sixth as often got %.2f of all tokens", part)
	}
}

// With fewer tokens than the replicas want, each still gets some.
func TestLimitOfAFewPerSecondIsShared(t *testing.T) {
	t.Parallel()
	all := three(t, testsupport.StartRedis(t), 20, 1, 0)
	all[0].startLoad(t, 400)
	startLoads(t, all[1:], 4)
	testsupport.Eventually(t, "each has sent five", func() bool {
		return all[0].sent.Load() >= 5 && all[1].sent.Load() >= 5 && all[2].sent.Load() >= 5
	})
	wantBound(t, 20, 6, all...) // two tokens for each replica
}

func TestReplicaWithoutTrafficHoldsFewTokens(t *testing.T) {
	t.Parallel()
	all := three(t, testsupport.StartRedis(t), limit, burst, 0)
	for _, m := range all {
		testsupport.Eventually(t, "only the reserve is held", func() bool { return lease(m.Bucket.lease.Load()).tokens() <= burst/12+1 })
	}
	all[0].startLoad(t, 2*limit)
	testsupport.Eventually(t, "one has sent more than two thirds of two seconds", func() bool { return float64(all[0].sent.Load()) > 1.3*limit })
	for _, m := range all[1:] {
		testsupport.AtMost(t, lease(m.Bucket.lease.Load()).tokens(), burst/12+1, "a replica without traffic holds %d tokens")
	}
	wantBound(t, limit, burst, all...)
}

func TestKilledReplicasShareGoesToTheOthers(t *testing.T) {
	t.Parallel()
	all := three(t, testsupport.StartRedis(t), limit, burst, 0, func(o *Options) { o.ReplicaTimeout = time.Second })
	startLoads(t, all, 2*limit)
	testsupport.Eventually(t, "all have sent", func() bool {
		return all[0].sent.Load() > 100 && all[1].sent.Load() > 100 && all[2].sent.Load() > 100
	})
	all[2].crash()
	for _, m := range all[:2] {
		testsupport.Eventually(t, "two are known, and share all", func() bool {
			return m.replicas.Load() == 2 && all[0].Share()+all[1].Share() > 0.95*limit
		})
	}
	// Redis only now counts the replica as dead: from here on the others get its tokens.
	testsupport.Eventually(t, "two send more than two thirds for half a second", func() bool {
		before, began := sent(all[:2]), time.Now()
		time.Sleep(500 * time.Millisecond)
		return sent(all[:2])-before > 0.75*limit*time.Since(began).Seconds()
	})
	wantBound(t, limit, burst, all[:2]...)
}

func TestClosedReplicaReleasesItsShareAtOnce(t *testing.T) {
	t.Parallel()
	all := three(t, testsupport.StartRedis(t), limit, burst, 100, neverTimesOut)
	all[2].Close(t.Context())
	awaitReplicas(t, all[:2], 2)
}

func TestChangedLimitAppliesAndRemovedSSPIsForgotten(t *testing.T) {
	t.Parallel()
	s := testsupport.StartRedis(t)
	m := join(t, socket(s), limit, burst, toleratesStalls)
	m.awaitConnected(t, true)
	testsupport.MustEqual(t, m.Fleet.Bucket("openx", limit/2, burst/2), m.Bucket, "another bucket: %v")
	testsupport.Eventually(t, "its share is the new limit", func() bool { return m.Share() == limit/2 })
	if n, _ := s.Do("EXISTS", "adbuffer:qps:openx").(int64); n != 1 {
		t.Fatal("there is no such key")
	}
	m.Keep(map[string]bool{"other": true})
	testsupport.Eventually(t, "its record is gone", func() bool {
		n, _ := s.Do("HLEN", "adbuffer:qps:openx").(int64)
		return n == 1 // the bucket itself, which expires
	})
	// The SSP returns as a new one: its calls are newer than those of its predecessor.
	for range 20 {
		m.Keep(nil)
		m.Bucket = m.Fleet.Bucket("openx", limit, burst)
		m.awaitConnected(t, true)
	}
	testsupport.Equal(t, m.failures.Load(), 0, "%d calls failed: %v", m.log.All())
	ttl, _ := s.Do("PTTL", "adbuffer:qps:openx").(int64)
	testsupport.True(t, ttl > 0 && ttl <= 2*stalledReplica.Milliseconds()+1000, "the key expires in %d ms", ttl)
}
