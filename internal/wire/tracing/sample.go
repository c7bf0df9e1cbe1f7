package tracing

import (
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/machine/rates"
)

// maxPerSecond bounds the requests that are traced in a second. Each of their spans takes about 1 KB, and CPU.
const maxPerSecond = 200

// sampler decides which requests are traced, and counts its decisions.
//
// A trusted client's decision holds, since an incomplete trace is of little use. An untrusted
// client could request spans for all its requests, so tracing.sample decides about them. At most
// maxPerSecond requests are traced in a second, for any clients.
type sampler struct {
	share     float64
	made      time.Time // the bucket counts from it
	bucket    rates.Bucket
	decisions [decisions]atomic.Uint64
}

// decision is the reason why a chosen request was traced or not. It is the label `decision` of
// adbuffer_trace_requests_total.
type decision uint8

const (
	byParent  decision = iota // a trusted peer had sampled the trace
	byShare                   // tracing.sample
	overLimit                 // maxPerSecond
	decisions
)

var decisionNames = [decisions]string{"parent", "share", "over_limit"}

func (s *sampler) init(o *Options) {
	s.share, s.made = o.Sample, time.Now()
	s.bucket.Start(0, maxPerSecond, maxPerSecond, 0)
}

// sample reports whether a request is traced. parent is not valid if the request has none.
func (s *sampler) sample(parent trace.SpanContext, trusted bool, now time.Time) bool {
	by := byShare
	if parent.IsValid() && trusted {
		if !parent.IsSampled() {
			return false
		}
		by = byParent
	} else if rand.Float64() >= s.share { // not by the trace id, which a client may choose
		return false
	}
	if !s.bucket.Take(now.Sub(s.made)) {
		by = overLimit
	}
	s.decisions[by].Add(1)
	return by != overLimit
}

var descRequests = Descs.New("adbuffer_trace_requests_total", "Requests that are traced, by the source of the decision: a trusted peer's traceparent (parent), or tracing.sample (share). Decision over_limit: chosen requests that are not traced since 200 were traced in that second.", "decision")

func (s *sampler) collect(to metrics.Sink) {
	for d, name := range decisionNames {
		to.Counter(descRequests, s.decisions[d].Load(), name)
	}
}

// random fills b, whose length is a multiple of 8, with bytes that are not all zero.
func random(b []byte) {
	for i := 0; i < len(b); i += 8 {
		binary.BigEndian.PutUint64(b[i:], rand.Uint64()|1)
	}
}
