//go:build !race

package shaper

import (
	"testing"
	"time"
)

// full returns a shaper whose table is full, and 4 000 segments of three keys.
func full() (*Shaper, []Segment) {
	s := New(Settings{Limit: 800, Burst: 80, Explore: 0.03, Keys: 3}, 1, t0)
	segments := make([]Segment, 4000)
	for i := range segments {
		for k, n := range [3]int{20, 400, 4000} {
			segments[i].set(k, uint64(i%n))
		}
	}
	for range 4 {
		for i := range segments {
			d := s.Decide(&segments[i], 40, t0)
			s.Learn(&segments[i], d, i%10 == 0, t0)
		}
	}
	return s, segments
}

func TestARequestAllocatesNothing(t *testing.T) {
	s, segments := full()
	n := 0
	value := []byte("a value of a key")
	got := testing.AllocsPerRun(5000, func() {
		n++
		now := t0.Add(time.Duration(n) * time.Millisecond)
		seg := segments[n%len(segments)]
		s.Hash(0, &segments[0], value)
		if d := s.Decide(&seg, 40, now); d.Kind != Dropped {
			s.Learn(&seg, d, n%10 == 0, now)
		}
	})
	if got != 0 {
		t.Errorf("a request allocates %v times", got)
	}
}

// BenchmarkDecide decides about 4 000 requests a second of 4 000 segments, and teaches the outcomes of those that are
// sent.
func BenchmarkDecide(b *testing.B) {
	s, segments := full()
	n := 0
	for b.Loop() {
		n++
		now := t0.Add(time.Duration(n) * 250 * time.Microsecond)
		seg := &segments[uint64(n)*0x9e3779b97f4a7c15>>32%4000]
		if d := s.Decide(seg, 40, now); d.Kind != Dropped {
			s.Learn(seg, d, n%10 == 0, now)
		}
	}
	b.ReportAllocs()
}

// BenchmarkDecideAndLearn is BenchmarkDecide without a limit: all requests teach.
func BenchmarkDecideAndLearn(b *testing.B) {
	s, segments := full()
	s.settings.Limit = 0
	n := 0
	for b.Loop() {
		n++
		now := t0.Add(time.Duration(n) * 250 * time.Microsecond)
		seg := &segments[uint64(n)*0x9e3779b97f4a7c15>>32%4000]
		s.Learn(seg, s.Decide(seg, 40, now), n%10 == 0, now)
	}
	b.ReportAllocs()
}
