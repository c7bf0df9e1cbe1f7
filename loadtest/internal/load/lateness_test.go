package load

import (
	"slices"
	"testing"
	"time"
)

// A request waits at most this often for a goroutine to run: the generator's when it is due, the
// SSP's when it has come and when its latency has passed, and the generator's when the response has
// come.
const waitsOfARequest = 4

// lateness measures how late goroutines of this process run, until stop. stop returns what quantile
// q of the moments would have had to wait: of a pause of 10 ms, its first moment 10 ms and its last
// one none.
func lateness(t *testing.T) (stop func() (at func(q float64) time.Duration)) {
	t.Helper()
	const tick = time.Millisecond
	end, done := make(chan struct{}), make(chan struct{})
	var late []time.Duration
	go func() {
		defer close(done)
		for last := time.Now(); ; {
			select {
			case <-end:
				return
			default:
			}
			time.Sleep(tick)
			now := time.Now()
			for d := now.Sub(last); d > 0; d -= tick {
				late = append(late, max(0, d-tick))
			}
			last = now
		}
	}()
	return func() func(q float64) time.Duration {
		close(end)
		<-done
		slices.Sort(late)
		return func(q float64) time.Duration { return late[int(q*float64(len(late)))] }
	}
}
