package sspsim_test

import (
	"fmt"
	"net/http"
	"time"

	"adbuffer/internal/sspsim"
)

// An SSP fails every third request, and then recovers.
func ExampleStart() {
	ssp, err := sspsim.Start(sspsim.Options{
		Behaviour: sspsim.Behaviour{
			Latency: sspsim.Lognormal(2*time.Millisecond, 5*time.Millisecond),
			Faults: sspsim.Faults{
				Status: sspsim.Status{Chance: sspsim.Every(3), Code: 503, RetryAfter: sspsim.Duration(time.Second)},
			},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ssp.Close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ask := func() {
		for range 3 {
			resp, err := client.Get(ssp.URL() + "?cb=17")
			if err != nil {
				fmt.Println(err)
				return
			}
			resp.Body.Close()
			fmt.Print(resp.StatusCode, " ")
		}
	}
	ask()
	if err := ssp.Set(sspsim.Behaviour{}); err != nil {
		fmt.Println(err)
	}
	ask()
	fmt.Println(ssp.Counters().ByStatus)
	// Output: 200 200 503 200 200 200 map[200:5 503:1]
}
