// Command saturation tells the story of a pool that gets too small: an SSP slows
// from 80 to 200 ms while requests keep coming at one rate. A real Prometheus
// scrapes adbuffer, with the rules of deploy/prometheus as they are, and must
// alert before the first request is refused; the advised size, once set, must
// end the waiting.
//
//	go run ./loadtest/saturation # writes loadtest/results/saturation-story.md
//
// It takes seven minutes, needs Debian's prometheus, and talks to loopback only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"adbuffer/internal/sspsim"
)

// The story: the load is 8 places at first and 20 at last, in a pool of 17.
const (
	rate       = 100 // requests per second
	fast, slow = 80 * time.Millisecond, 200 * time.Millisecond
	poolSize   = 17
	// warmUp is how long the pool is given to open the connections that it may
	// have now; the waiting until then is not what this is about.
	warmUp = 10 * time.Second
)

func main() {
	out := flag.String("out", "loadtest/results/saturation-story.md", "file to write")
	calm := flag.Duration("calm", 20*time.Second, "how long the SSP is fast at first")
	ramp := flag.Duration("ramp", 4*time.Minute, "how long the SSP takes to slow down")
	after := flag.Duration("after", 75*time.Second, "how long the advised size is watched")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	t, err := tell(ctx, *calm, *ramp, *after)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(*out), 0o755)
	}
	if err == nil {
		err = os.WriteFile(*out, t.markdown(), 0o644)
	}
	if err == nil {
		err = t.verdict()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "saturation:", err)
		os.Exit(1)
	}
}

// tell runs the story and notes what happens.
func tell(ctx context.Context, calm, ramp, after time.Duration) (*story, error) {
	dir, err := os.MkdirTemp("", "adbuffer-saturation-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a leftover temporary folder harms nobody
	ssp, err := sspsim.Start(sspsim.Options{Behaviour: answeringIn(fast)})
	if err != nil {
		return nil, err
	}
	defer ssp.Close() //nolint:errcheck // the story is over
	m, err := newMachine(ctx, dir, ssp.URL())
	if err != nil {
		return nil, err
	}
	defer m.close()

	s := &story{began: time.Now(), machine: m, progress: os.Stderr}
	if err := m.startAdbuffer(ctx, poolSize); err != nil {
		return nil, err
	}
	if err := m.startPrometheus(ctx); err != nil {
		return nil, err
	}
	load := startLoad(ctx, m.trafficURL(), rate)
	defer load.stop()
	s.note("%d requests/s begin, to an SSP that takes %v, over a pool of %d connections", rate, fast, poolSize)
	if err := s.watch(ctx, load, calm, nil); err != nil {
		return nil, err
	}
	s.note("the SSP begins to slow down, to %v over %v", slow, ramp)
	slowing := time.Now()
	if err := s.watch(ctx, load, ramp, func() error {
		share := min(1, float64(time.Since(slowing))/float64(ramp))
		return ssp.Set(answeringIn(fast + time.Duration(share*float64(slow-fast))))
	}); err != nil {
		return nil, err
	}
	// The advice for the SSP as it is now: of a whole minute at 200 ms.
	if err := s.watch(ctx, load, 65*time.Second, nil); err != nil {
		return nil, err
	}
	s.advised = s.last.advised
	if s.advised <= poolSize {
		return nil, errors.New("no larger pool was advised: the story did not come off")
	}
	s.note("the pool is set to the advised %d connections, in the running process", s.advised)
	if err := m.resize(ctx, s.advised); err != nil {
		return nil, err
	}
	load.stop()
	s.before = load.counts()
	warming := startLoad(ctx, m.trafficURL(), rate)
	defer warming.stop()
	if err := s.watch(ctx, warming, warmUp, nil); err != nil {
		return nil, err
	}
	warming.stop()
	waited, lent := s.last.waited, s.last.lent
	again := startLoad(ctx, m.trafficURL(), rate)
	defer again.stop()
	if err := s.watch(ctx, again, after, nil); err != nil {
		return nil, err
	}
	again.stop()
	s.after = again.counts()
	s.waitedAfter, s.lentAfter = s.last.waited-waited, s.last.lent-lent
	s.note("the end: %s", s.last)
	return s, nil
}

func answeringIn(d time.Duration) sspsim.Behaviour {
	return sspsim.Behaviour{Latency: sspsim.Constant(d)}
}

// say prints as the story goes on.
func say(w io.Writer, format string, args ...any) {
	fmt.Fprintf(w, format+"\n", args...) //nolint:errcheck // nobody is left to be told
}
