package balancer

import (
	"testing"
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/test/testsupport"
)

func testEjection() Ejection {
	return Ejection{
		Enabled: true, Window: 10 * time.Second, MinRequests: 20, FailureRatio: 0.5,
		BaseTime: 5 * time.Second, MaxTime: 5 * time.Minute, Consecutive: 5, MaxEjected: 0.5,
	}
}

// An endpoint at which all requests fail is ejected, however its clients share the load.
func TestADeadEndpointIsEjectedHoweverItsClientsShareTheLoad(t *testing.T) {
	const every = 10 * time.Millisecond
	alike := func(n int) rates.Group { return rates.Group(n % 10) }
	for name, c := range map[string]struct {
		client func(n int) rates.Group // of the n-th request
		dials  bool                    // the failures are failed dials
		most   int                     // failures until it is ejected
	}{
		"one client":                     {func(int) rates.Group { return 0 }, false, 5},
		"two alike":                      {func(n int) rates.Group { return rates.Group(n % 2) }, false, 5},
		"ten alike":                      {alike, false, 5},
		"ten alike, and dials fail":      {alike, true, 5},
		"one, and another one each 10 s": {func(n int) rates.Group { return rates.Group(max(0, n%1000-998)) }, false, 5},
		"two, one with 95 %":             {func(n int) rates.Group { return rates.Group(max(0, n%20-18)) }, false, 20},
		// Four of the other nine must fail too.
		"ten, one with 95 %": {func(n int) rates.Group { return rates.Group(max(0, n%20-18) * (1 + n/20%9)) }, false, 4 * 20},
	} {
		o := testEjection()
		var h failures
		h.window.Init(o.Window, 0)
		now, n := time.Duration(0), 0
		for ; n < 2000; n++ {
			testsupport.MustTrue(t, !h.record(&o, c.client(n), false, now), "%s: ejected by a success", name)
			now += every
		}
		failed := 1
		client := c.client
		if c.dials {
			client = func(int) rates.Group { return rates.Ours }
		}
		for ; !h.record(&o, client(n), true, now) && failed < 1000; n++ {
			failed++
			now += every
		}
		testsupport.AtMost(t, failed, c.most, "%[2]s: ejected after %[1]d failures", name)
	}
}

// The share of max_ejected is rounded down, without a binary rounding error.
func TestMostEjectedIsExact(t *testing.T) {
	for n := 2; n <= 200; n++ {
		for percent := 1; percent <= 100; percent++ {
			o := Ejection{MaxEjected: float64(percent) / 100}
			got, want := o.maxOut(n), min(max(percent*n/100, 1), n-1)
			testsupport.MustTrue(t, got == want, "%d %% of %d endpoints are %d, want %d", percent, n, got, want)
		}
	}
}
