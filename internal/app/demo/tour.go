package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// bid is a small OpenRTB 2.6 bid request.
const bid = `{"id":"demo-1","imp":[{"id":"1","banner":{"w":300,"h":250}}],"site":{"page":"https://publisher.example/"},"tmax":300}`

// Tour sends requests through every route, and prints the responses.
func (d *Demo) Tour(ctx context.Context) error {
	client := &http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	if err := d.awaitReady(ctx); err != nil {
		return err
	}
	for _, step := range []struct{ title, target string }{
		{"single: one SSP, over HTTP/1.1", "GET /fillbuffer?pub=1&slot=top"},
		{"the client chooses beta, over HTTP/2; an OpenRTB bid request", "POST /fillbuffer/beta"},
		{"the client chooses slow: adbuffer stops waiting at the deadline", "GET /fillbuffer?ssp=slow"},
		{"the client chooses broken: its 503 is forwarded", "GET /fillbuffer?ssp=broken"},
		{"split: alpha and beta, 3 to 1", "GET /split?pub=1"},
		{"waterfall: broken, then slow (100 ms), then beta", "GET /waterfall?pub=1"},
		{"parallel-first: slow, beta and alpha at once; the first fill is the response", "GET /parallel-first?pub=1"},
		{"parallel-all: every response in one document; adbuffer does not wait for slow", "GET /parallel-all?pub=1"},
		{"merge: openrtb: one BidResponse; slow gets only requests for video, which is 203", "POST /auction"},
		{"on_error: no_ad: an empty VAST document instead of broken's 503", "GET /vast?pub=1"},
	} {
		if err := d.show(ctx, client, step.title, step.target); err != nil {
			return err
		}
	}
	return nil
}

func (d *Demo) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for !d.App.Ready() {
		select {
		case <-ctx.Done():
			return errors.New("the demo did not become ready within 10 s")
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

func (d *Demo) show(ctx context.Context, client *http.Client, title, target string) error {
	start := time.Now()
	res, err := d.send(ctx, client, target)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "%s\n  %s\n  %s in %d ms, from %s\n", title, target, res.Status,
		time.Since(start).Milliseconds(), res.Header.Get("X-Adbuffer-Source"))
	if text := strings.TrimSpace(string(got)); text != "" {
		if len(text) > 300 {
			text = text[:300] + "…"
		}
		fmt.Fprintf(d.out, "  %s\n", strings.ReplaceAll(text, "\n", "\n  "))
	}
	fmt.Fprintln(d.out)
	return nil
}

// Invite prints suggestions for the next steps.
func (d *Demo) Invite(quiet bool) {
	load := "A light load runs until you stop the demo; --quiet runs none."
	if quiet {
		load = "No load runs, because of --quiet."
	}
	fmt.Fprintf(d.out, `%[3]s Ctrl-C ends the demo. Try next:
  the page: how full the pools are, what to set
    open %[2]s/
  a request
    curl -i '%[1]s/fillbuffer?pub=1'
  too little time
    curl -i -H 'X-Adbuffer-Timeout-Ms: 20' '%[1]s/fillbuffer/beta'
  all SSPs at once
    curl -s '%[1]s/parallel-all' | head -c 400
  the requests that broken fails, as they end
    %[4]s tail --admin %[2]s --ssp broken
  how a request would be handled
    %[4]s explain --admin %[2]s '/waterfall?pub=1'
  saturation for Prometheus
    curl -s '%[2]s/metrics' | grep ^adbuffer_pool_saturation
  how large the pools should be
    %[4]s plan --admin %[2]s
Then write a configuration: config/minimal.yaml is the shortest, config/reference.yaml describes every setting.
`, "http://"+d.App.TrafficAddr().String(), "http://"+d.App.AdminAddr().String(), load, program())
}

// program returns the command that started this process.
func program() string {
	if strings.Contains(os.Args[0], "go-build") {
		return "go run ./cmd/adbuffer"
	}
	return os.Args[0]
}
