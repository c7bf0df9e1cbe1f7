package load

import (
	"slices"
	"testing"
	"time"
)

// waitsOfARequest is how often a request waits for a goroutine at most. The generator's goroutine
// sends it and reads its response. The SSP's goroutine reads it and responds after its latency.
const waitsOfARequest = 4

// lateness measures how late goroutines of this process run, until stop. stop returns a function that
// returns quantile q of the delays. In a pause of 10 ms, the first moment has a delay of 10 ms and the
// last moment has none.
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
