package demo

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

const (
	// During each swing, the rate rises from slowest to fastest requests per second and falls again; then
	// follows a burst. So saturation, percentiles and the queue on the page all change.
	slowest, fastest = 5, 60
	swing            = 30 * time.Second
	burst            = 24
	// maxInFlight bounds the load if responses take long.
	maxInFlight = 64
)

// targets are the request targets of the load. A target that is listed twice is requested twice as
// often.
var targets = []string{
	"GET /fillbuffer?pub=1", "GET /fillbuffer?pub=2", "GET /fillbuffer?pub=3", "GET /fillbuffer?pub=4", "POST /fillbuffer/beta", "POST /fillbuffer/beta",
	"GET /split?pub=1", "GET /split?pub=2", "GET /split?pub=3", "GET /parallel-first?pub=1", "GET /waterfall?pub=1", "GET /parallel-all?pub=1",
	"GET /vast?pub=1", "GET /fillbuffer?ssp=slow", "GET /fillbuffer?ssp=broken",
}

// Load sends a light load through every route until ctx ends.
func (d *Demo) Load(ctx context.Context) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: maxInFlight}}
	defer client.CloseIdleConnections()
	inFlight := make(chan struct{}, maxInFlight)
	send := func() {
		select {
		case inFlight <- struct{}{}:
		default:
			return
		}
		go func() {
			defer func() { <-inFlight }()
			// The page shows the outcome, so errors are ignored.
			if res, err := d.send(ctx, client, targets[rand.IntN(len(targets))]); err == nil {
				io.Copy(io.Discard, res.Body) //nolint:errcheck // the page shows the outcome
				res.Body.Close()
			}
		}()
	}
	swings := 0
	for began := time.Now(); ; {
		passed := time.Since(began)
		if n := int(passed / swing); n > swings {
			swings = n
			for range burst {
				send()
			}
		}
		send()
		wave := (1 - math.Cos(2*math.Pi*passed.Seconds()/swing.Seconds())) / 2
		rate := slowest + (fastest-slowest)*wave
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(float64(time.Second) / rate)):
		}
	}
}

// send sends a request for a target such as "GET /split". The body of a POST is a bid request. The caller
// closes the response's body.
func (d *Demo) send(ctx context.Context, client *http.Client, target string) (*http.Response, error) {
	method, path, _ := strings.Cut(target, " ")
	body := ""
	if method == http.MethodPost {
		body = bid
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+d.App.TrafficAddr().String()+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return client.Do(req)
}
