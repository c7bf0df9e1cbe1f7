package route

import (
	"testing"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/testsupport"

	"github.com/google/go-cmp/cmp"
)

func TestSplitDrawsByWeight(t *testing.T) {
	for _, tt := range []struct{ weights []int }{
		{[]int{1}}, {[]int{1, 1}}, {[]int{3, 1}}, {[]int{0, 2, 0, 3, 0}}, {[]int{1, 0}}, {[]int{0, 1}},
	} {
		rt := &Route{Mode: Split}
		sum := 0
		for _, w := range tt.weights {
			rt.Targets = append(rt.Targets, Target{SSP: newFake(t, "a", silent).SSP, Weight: w})
			sum += w
		}
		rt.ready()
		drawn := make([]int, len(tt.weights))
		for n := range sum {
			rt.draw = func(of int) int {
				testsupport.Equal(t, of, sum, "%[2]v: drawn of %[1]d", tt.weights)
				return n
			}
			target := rt.pick(new(ssp.Request), new(*legLog))
			for i := range rt.Targets {
				if target == &rt.Targets[i] {
					drawn[i]++
				}
			}
		}
		testsupport.Equal(t, cmp.Diff(tt.weights, drawn), "", "each number once draws (-want +got):\n%s")
	}
}

// A random draw chooses every SSP that has a weight, and no other SSP.
func TestSplitIsRandom(t *testing.T) {
	rt := newRoute(Split, newFake(t, "a", silent), newFake(t, "b", silent), newFake(t, "c", silent))
	rt.Targets[1].Weight = 0
	rt.ready()
	drawn := map[string]int{}
	for range 1000 {
		drawn[rt.pick(new(ssp.Request), new(*legLog)).SSP.Name()]++
	}
	testsupport.True(t, drawn["a"] != 0 && drawn["c"] != 0 && drawn["b"] <= 0, "drawn: %v", drawn)
}

func TestSplitWithoutWeightsIsABug(t *testing.T) {
	defer func() {
		testsupport.True(t, recover() != nil, "NewTable did not panic")
	}()
	NewTable([]*Route{{Mode: Split, Targets: []Target{{}, {}}}})
}
