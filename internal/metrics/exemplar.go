package metrics

import (
	"encoding/hex"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Exemplar is a value and the trace of the request that it was observed for.
type Exemplar struct {
	TraceID [16]byte
	Value   int64 // as observed
	At      time.Time
}

// exemplars holds the last exemplar of each bucket. Most histograms have none, and use no memory
// for them.
type exemplars struct {
	mu   sync.Mutex  // guards last
	last []*Exemplar // of each bucket; an entry never changes
}

// ObserveTraced counts d, and keeps it as its bucket's exemplar. It allocates: use it only for
// traced requests.
func (h *Histogram) ObserveTraced(d time.Duration, traceID [16]byte, at time.Time) {
	h.ObserveDuration(d)
	e := &Exemplar{TraceID: traceID, Value: max(int64(d), 0), At: at}
	bucket, _ := slices.BinarySearch(h.bounds, e.Value)
	h.exemplars.mu.Lock()
	defer h.exemplars.mu.Unlock()
	if h.exemplars.last == nil {
		h.exemplars.last = make([]*Exemplar, len(h.bounds)+1)
	}
	h.exemplars.last[bucket] = e
}

// Exemplars returns the exemplar of each bucket, nil for a bucket without one; the last bucket is
// above all bounds. It returns nil if no bucket has one.
func (h *Histogram) Exemplars() []*Exemplar {
	h.exemplars.mu.Lock()
	defer h.exemplars.mu.Unlock()
	return slices.Clone(h.exemplars.last)
}

func (e *Exemplar) message(l *layout) *dto.Exemplar {
	return &dto.Exemplar{
		Label: []*dto.LabelPair{{Name: new("trace_id"), Value: new(hex.EncodeToString(e.TraceID[:]))}},
		Value: new(l.export(float64(e.Value))), Timestamp: timestamppb.New(e.At),
	}
}
