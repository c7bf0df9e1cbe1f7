package route

import (
	"testing"

	"adbuffer/internal/ssp"
	"adbuffer/internal/testsupport"

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

func TestSplitAsksOneSSP(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", responses(0, 503)), newFake(t, "b", fills(0, "ad"))
		rt := newRoute(Split, a, b)
		rt.Targets[1].Weight = 9
		rt.ready()
		draws := []int{0, 1, 2, 8, 9}
		rt.draw = func(int) int { n := draws[0]; draws = draws[1:]; return n }
		for i := range 5 {
			expect := "fill of b: 200 ad"
			if i == 0 {
				expect = "server_error of a: 503 no ad for you" // b gets no request instead
			}
			r := get(t)
			res := rt.Do(&r.Request, nil, newProcess(t))
			want(t, "result", ended(&res), expect)
			if res.Legs() != nil {
				t.Errorf("legs: %s", legsOf(&res))
			}
			res.Release()
		}
		a.wantRequests(1)
		b.wantRequests(4)
	})
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
