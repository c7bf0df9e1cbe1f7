package alarm

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
)

func TestItRingsAtTheEarliestMomentAndOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var mu sync.Mutex
		var rang []time.Duration
		var a Alarm
		a.Ring = func() {
			mu.Lock()
			defer mu.Unlock()
			a.At = time.Time{}
			rang = append(rang, time.Since(begun))
			if len(rang) == 1 {
				a.Set(begun.Add(5 * time.Second))
			}
		}
		mu.Lock()
		for _, at := range []time.Duration{3, 2, 7} {
			a.Set(begun.Add(at * time.Second))
		}
		mu.Unlock()
		time.Sleep(time.Minute)
		mu.Lock()
		a.Set(begun.Add(2 * time.Minute))
		a.Stop()
		mu.Unlock()
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		testsupport.True(t, len(rang) == 2 && rang[0] == 2*time.Second && rang[1] == 5*time.Second, "it rang after %v, want 2s and 5s", rang)
	})
}
