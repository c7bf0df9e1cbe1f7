package balancer

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"adbuffer/internal/test/testsupport"
)

func TestSmoothRoundsAreExactAndSmooth(t *testing.T) {
	if got := smoothRound([]int{5, 1, 1}); fmt.Sprint(got) != "[0 0 1 0 2 0 0]" {
		t.Errorf("5, 1, 1: %v", got) // the order in nginx's description of the algorithm
	}
	for range 200 {
		weights := make([]int, 1+rand.IntN(8))
		sum := 0
		for i := range weights {
			weights[i] = 1 + rand.IntN(1000)
			sum += weights[i]
		}
		round := smoothRound(weights)
		testsupport.MustTrue(t, len(round) <= maxTurns+len(weights), "%v: a round of %d turns", weights, len(round))
		for i, w := range weights {
			n := 0
			for _, at := range round {
				if at == i {
					n++
				}
			}
			want := float64(w) / float64(sum)
			got := float64(n) / float64(len(round))
			testsupport.True(t, n != 0 && got >= want-0.01 && got <= want+0.01, "%v: share %v of endpoint %d, want %v", weights, got, i, want)
		}
	}
}
