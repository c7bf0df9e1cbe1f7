package fleet

import (
	"fmt"
	"testing"
	"time"

	"adbuffer/internal/testsupport"
)

func BenchmarkTake(b *testing.B) {
	full := uint64(newLease(time.Hour, maxTokens))
	for _, c := range []struct {
		name  string
		bring func() *Bucket
	}{
		{"leased", func() *Bucket {
			k := newBucket("openx", settings{1e7, 1e7}, 1)
			k.grant(time.Second, 1e7, 1e7)
			return k
		}},
		{"refused", func() *Bucket { k := newBucket("openx", settings{1e7, 1e7}, 1); k.grant(time.Second, 0, 1e7); return k }},
		{"alone", func() *Bucket { return newBucket("openx", settings{1e7, 1e7}, 1) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			k := c.bring()
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if !k.Take(time.Second) && c.name == "leased" {
						k.lease.Store(full)
					}
				}
			})
		})
	}
}

// BenchmarkCall measures a call with this many known replicas.
func BenchmarkCall(b *testing.B) {
	for _, replicas := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("replicas=%d", replicas), func(b *testing.B) {
			s := testsupport.StartRedis(b)
			m := join(b, socket(s), limit, burst)
			m.awaitConnected(b, true)
			m.crash() // from here on the benchmark itself calls
			const never = 99999999999999.0
			for i := 1; i < replicas; i++ {
				s.Do("HSET", "adbuffer:qps:openx", fmt.Sprint("r", i), fmt.Sprintf("1 %f %f 1 3 10 10 0", never, never))
			}
			m.opts.ReplicaTimeout = time.Hour
			conn, err := m.open(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			defer conn.close()
			all := []*Bucket{m.Bucket}
			used := s.CPU()
			for b.Loop() {
				if err := m.Fleet.lease(b.Context(), conn, all); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((s.CPU()-used).Microseconds())/float64(b.N), "redis-µs/op")
			if n := int(m.replicas.Load()); n != replicas {
				b.Errorf("%d replicas are known", n)
			}
		})
	}
}
