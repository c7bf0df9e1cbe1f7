package metrics

import (
	"encoding/hex"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// exemplars holds the last exemplar of each bucket: a value, and the trace id of the request that the value belongs
// to. Most histograms have no exemplars, and use no memory for them.
type exemplars struct {
	mu   sync.Mutex      // guards last
	last []*dto.Exemplar // by bucket, ending with the bucket above all bounds; nil = no exemplar. An exemplar never changes.
}

// ObserveTraced counts d, and makes it the exemplar of its bucket. It allocates, so it is only for traced requests.
func (h *Histogram) ObserveTraced(d time.Duration, traceID [16]byte, at time.Time) {
	h.ObserveDuration(d)
	d = max(d, 0)
	e := &dto.Exemplar{
		Label: []*dto.LabelPair{{Name: new("trace_id"), Value: new(hex.EncodeToString(traceID[:]))}},
		Value: new(seconds(float64(d))), Timestamp: timestamppb.New(at),
	}
	bucket, _ := slices.BinarySearch(h.bounds, int64(d))
	h.exemplars.mu.Lock()
	defer h.exemplars.mu.Unlock()
	if h.exemplars.last == nil {
		h.exemplars.last = make([]*dto.Exemplar, len(h.bounds)+1)
	}
	h.exemplars.last[bucket] = e
}

// copy returns the exemplar of each bucket, or nil if no bucket has one.
func (x *exemplars) copy() []*dto.Exemplar {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.last)
}
