package alarm

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestItRingsAtTheEarliestMomentAndOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var rang []time.Duration
		var a Alarm
		a.Ring = func() {
			a.At = time.Time{}
			rang = append(rang, time.Since(begun))
			if len(rang) == 1 {
				a.Set(begun.Add(5 * time.Second))
			}
		}
		for _, at := range []time.Duration{3, 7, 2} {
			a.Set(begun.Add(at * time.Second))
		}
		time.Sleep(time.Minute)
		a.Set(begun.Add(2 * time.Minute))
		a.Stop()
		time.Sleep(time.Hour)
		if len(rang) != 2 || rang[0] != 2*time.Second || rang[1] != 5*time.Second {
			t.Errorf("it rang after %v, want 2s and 5s", rang)
		}
	})
}
