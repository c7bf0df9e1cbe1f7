package tracing

import (
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"adbuffer/internal/machine/rates"
)

// maxPerSecond bounds the rate of traced requests, and their number in a burst. Each of their spans takes about 1 KB, and
// CPU.
const maxPerSecond = 200

// sampler decides which requests are traced, and counts the requests that are not traced only because of maxPerSecond.
//
// The decision of a trusted client holds, since an incomplete trace is of little use. An untrusted client could ask for
// a trace of each of its requests, so tracing.sample decides about them. maxPerSecond also holds for the requests that
// trusted clients choose.
type sampler struct {
	share     float64
	epoch     time.Time // the time 0 of bucket
	bucket    rates.Bucket
	overLimit atomic.Uint64 // chosen requests that are not traced because of maxPerSecond
}

func (s *sampler) init(o *Options) {
	s.share, s.epoch = o.Sample, time.Now()
	s.bucket.Start(0, maxPerSecond, maxPerSecond, 0)
}

// sample reports whether a request is traced. parent is invalid if the request has no traceparent.
func (s *sampler) sample(parent trace.SpanContext, trusted bool, now time.Time) bool {
	if parent.IsValid() && trusted {
		if !parent.IsSampled() {
			return false
		}
	} else if rand.Float64() >= s.share { // not by the trace id, which a client may choose
		return false
	}
	if !s.bucket.Take(now.Sub(s.epoch)) {
		s.overLimit.Add(1)
		return false
	}
	return true
}

// random fills b with random bytes that are not all zero, as an id must be. The length of b is a multiple of 8.
func random(b []byte) {
	for i := 0; i < len(b); i += 8 {
		binary.BigEndian.PutUint64(b[i:], rand.Uint64()|1)
	}
}
