package fleet

import (
	"testing"
	"time"
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
