package rig

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"adbuffer/internal/test/testsupport"
	"adbuffer/loadtest/internal/load"
)

func TestWRKOutputIsRead(t *testing.T) {
	got, err := parseWRK("Running 3s test\n\nRESULT {\"requests\":300,\"microseconds\":1500000,\"failed\":0,\"p50\":1500.000000,\"p95\":2000,\"p99\":2500.5,\"p999\":3000,\"max\":9000}\n")
	want := &Figures{Summary: load.Summary{Answered: 300, Rate: 200, Seconds: 1.5, Latency: load.Latency{P50: 1.5, P95: 2, P99: 2.5005, P999: 3, Max: 9}}}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v, %s", err, d)
	}
	if _, err := parseWRK("unable to connect"); err == nil {
		t.Error("a text without results was read")
	}
}

func TestH2LoadsLogBecomesPercentiles(t *testing.T) {
	log := &strings.Builder{}
	for i := range 1000 {
		status := 200
		if i == 500 {
			status = 502
		}
		fmt.Fprintf(log, "%d\t%d\t%d\n", 1700000000000000+i, status, 1000*(i+1))
	}
	l, err := parseH2Load(strings.NewReader(log.String()))
	testsupport.MustTrue(t, err == nil && l.Answered == 999 && l.Failed == 1, "%+v, %v", l, err)
	for name, v := range map[string][2]float64{"p50": {l.Latency.P50, 500}, "p99": {l.Latency.P99, 990}, "p99.9": {l.Latency.P999, 999}, "max": {l.Latency.Max, 1000}} {
		testsupport.True(t, v[0] >= 0.99*v[1] && v[0] <= 1.01*v[1], "%s is %v ms, want %v", name, v[0], v[1])
	}
	if _, err := parseH2Load(strings.NewReader("no such line\n")); err == nil {
		t.Error("a line without figures passed")
	}
}

// A tool that runs but whose requests fail, or that sends none, is doubted.
func TestFailedRequestsOfAToolAreDoubted(t *testing.T) {
	for _, c := range []struct {
		answered, failed uint64
		doubts           int
	}{{10, 0, 0}, {10, 1, 1}, {0, 0, 1}} {
		f, err := tool(0, func(*Stage) ([]string, func(string) (*Figures, error)) {
			return []string{"true"}, func(string) (*Figures, error) {
				return &Figures{Summary: load.Summary{Answered: c.answered, Failed: c.failed}}, nil
			}
		})(&Stage{Rig: &Rig{Ctx: t.Context()}})
		testsupport.True(t, err == nil && len(f.Doubts) == c.doubts, "%+v: doubts %q, %v", c, f.Doubts, err)
	}
}
