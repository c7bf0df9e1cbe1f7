package limits

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
)

// watch polls the metrics until stop, and keeps the highest value of each.
func watch(ab *e2e.Process, names ...string) (stop func() map[string]float64) {
	highest := map[string]float64{}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			_, text, err := ab.TryAskAdmin("/metrics")
			if err != nil {
				ab.T.Error(err)
				return
			}
			m := e2e.ParseMetrics(ab.T, text)
			for _, name := range names {
				for _, s := range m.All(name) {
					highest[name+s.Labels] = max(highest[name+s.Labels], s.Value)
					highest[name] = max(highest[name], s.Value)
				}
			}
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() map[string]float64 {
		close(done)
		<-ended
		return highest
	}
}

func TestMaxBufferedBytesHoldsUnderBursts(t *testing.T) {
	t.Parallel()
	const limit = 200_000
	s := e2e.SSPWith(t, sspsim.Behaviour{
		Latency:  sspsim.Constant(10 * time.Millisecond),
		Response: sspsim.Response{Kind: sspsim.Raw, Size: sspsim.Size{Constant: 15_000}, Chunked: sspsim.Every(2)},
	})
	ab := e2e.Start(t, fmt.Sprintf("server: {max_buffered_bytes: %d}\n", limit)+e2e.Single(s.URL(), fmt.Sprintf("max_buffered_bytes: %d", 2*limit)))
	stop := watch(ab, "adbuffer_buffered_bytes", "adbuffer_in_flight_requests")
	var all e2e.Tally
	body := strings.Repeat("b", 10_000)
	ab.Concurrently(80, func(w *e2e.Worker) error { // 10 times as many requests as 8 places serve
		for range 40 {
			a, err := w.Exchange("POST", "/fillbuffer", body)
			if err != nil {
				return err
			}
			all.Add(a)
		}
		return nil
	})
	highest := stop()
	all.Log(t, "POST")
	t.Logf("gauges %v", highest)
	if n := highest["adbuffer_buffered_bytes"]; n > limit || n < limit/4 {
		t.Errorf("buffered_bytes rose to %v, want close to %d and never above", n, limit)
	}
	if all.Of("ssp/openx 200") == 0 || all.Of("proxy/overloaded 503") == 0 || all.Of("ssp/openx 200")+all.Of("proxy/overloaded 503") != all.Total() {
		t.Error("want only fills and overloaded")
	}
}
