package metrics

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"adbuffer/internal/test/testsupport"
)

// The expected result is client_golang's own native histogram, with the same schema and threshold.
func TestNativeHistogramEqualsClientGolang(t *testing.T) {
	for name, bounds := range map[string][]time.Duration{"requests": bounds, "waits": {ms / 10, ms / 4, ms, 20 * ms, time.Second}} {
		h := DurationsInParts(4, bounds...)
		peer := prometheus.NewHistogram(prometheus.HistogramOpts{
			NativeHistogramBucketFactor: nativeFactor, NativeHistogramZeroThreshold: h.native.threshold(),
		})
		observe := func(d time.Duration) {
			h.ObserveDuration(d)
			peer.Observe(float64(d) / 1e9)
		}
		for _, d := range []time.Duration{0, 1, ms, ms + 1, ms - 1, bounds[0], bounds[len(bounds)-1], bounds[len(bounds)-1] + 1} {
			observe(d)
		}
		highest := float64(2 * bounds[len(bounds)-1])
		for range 5000 {
			observe(time.Duration(math.Exp(rand.Float64() * math.Log(highest))))
		}
		got, want := message(t, h), message(t, peer)
		if got.GetSchema() != want.GetSchema() || got.GetZeroThreshold() != want.GetZeroThreshold() || got.GetZeroCount() != want.GetZeroCount() || got.GetSampleCount() != want.GetSampleCount() {
			t.Errorf("%s: schema %v, threshold %v, %v below it of %v; want %v, %v, %v, %v", name, got.GetSchema(), got.GetZeroThreshold(), got.GetZeroCount(), got.GetSampleCount(),
				want.GetSchema(), want.GetZeroThreshold(), want.GetZeroCount(), want.GetSampleCount())
		}
		g, w := populations(got), populations(want)
		testsupport.True(t, slices.Equal(g, w), "%s: buckets %v, want %v", name, g, w)
	}
}

// message returns what h writes.
func message(t *testing.T, h Writer) *dto.Histogram {
	t.Helper()
	var m dto.Metric
	testsupport.NoError(t, h.Write(&m))
	return m.Histogram
}

// populations returns number and population of each bucket that is not empty.
func populations(h *dto.Histogram) (all [][2]int64) {
	number, count, at := int64(0), int64(0), 0
	for _, s := range h.PositiveSpan {
		number += int64(s.GetOffset())
		for range s.GetLength() {
			count += h.PositiveDelta[at]
			if count != 0 {
				all = append(all, [2]int64{number, count})
			}
			number++
			at++
		}
	}
	return all
}

func TestValuesFarAboveTheBoundsCountInTheLastNativeBucket(t *testing.T) {
	h := Durations(ms, 8*time.Second)
	h.ObserveDuration(time.Hour)
	if got := populations(message(t, h)); !slices.Equal(got, [][2]int64{{3*bucketsPerDoubling + margin, 1}}) { // 8 · 2^(8/4) s
		t.Errorf("buckets %v, want one observation in bucket %d", got, 3*bucketsPerDoubling+margin)
	}
}

// Each fine bucket is within one bucket of each kind.
func TestFineBucketsDivideBothKindsOfBuckets(t *testing.T) {
	h := DurationsInParts(4, bounds...)
	for i := range h.fine {
		if at := h.fineBucket(h.fine[i]); at != i {
			t.Errorf("%d ns are in fine bucket %d, want %d", h.fine[i], at, i)
		}
		at := h.fineBucket(h.fine[i] + 1)
		testsupport.True(t, at == i+1, "%d ns are in fine bucket %d, want %d", h.fine[i]+1, at, i+1)
	}
	if h.fineBucket(0) != 0 || h.fineBucket(math.MaxInt64) != len(h.fine) {
		t.Errorf("0 is in bucket %d, and the longest duration in %d of %d", h.fineBucket(0), h.fineBucket(math.MaxInt64), len(h.fine))
	}
}

func TestExemplarsAreOneForEachBucketAndTheLast(t *testing.T) {
	h := Durations(ms, 10*ms)
	if h.ObserveDuration(ms); h.exemplars.copy() != nil {
		t.Error("a histogram has exemplars without traced requests")
	}
	at := time.Unix(1_700_000_000, 5e8)
	for i, d := range []time.Duration{ms / 2, ms, 5 * ms, time.Second, -time.Second, 2 * time.Second} {
		h.ObserveTraced(d, [16]byte{0: 0xab, 15: byte(i)}, at)
	}
	b := message(t, h)
	testsupport.Equal(t, b.GetSampleCount(), 7, "%d observations")
	for i, want := range []struct {
		trace string
		value float64
	}{{"ab000000000000000000000000000004", 0}, {"ab000000000000000000000000000002", 0.005}} {
		e := b.Bucket[i].Exemplar
		if e.Label[0].GetName() != "trace_id" || e.Label[0].GetValue() != want.trace || e.GetValue() != want.value || !e.Timestamp.AsTime().Equal(at) {
			t.Errorf("bucket %d has the exemplar %v, want %+v", i, e, want)
		}
	}
	all := h.exemplars.copy()
	testsupport.True(t, len(all) == 3 && all[2].Label[0].GetValue() == "ab000000000000000000000000000005", "exemplars %v, want one for each of 3 buckets, the last of 2s", all)
}
