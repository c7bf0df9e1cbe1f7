package load

import (
	"slices"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// A busy machine adds to latencies, but to no more than the time of the whole run.
func TestLatencyOfAKnownSSPIsMeasured(t *testing.T) {
	for _, c := range []struct {
		protocol Protocol
		depth    int
	}{
		{KeepAlive, 1},
		{Close, 1},
		{Pipelined, 16},
	} {
		t.Run(string(c.protocol), func(t *testing.T) {
			t.Parallel()
			s := startSSP(t, sspsim.Options{Behaviour: sspsim.Behaviour{
				Latency: sspsim.Constant(200 * time.Millisecond), Connections: sspsim.Connections{PipelineOverlap: true}}})
			p := at(s.Addr(), 50, time.Second)
			p.Protocol, p.Depth, p.Timeout = c.protocol, c.depth, time.Minute
			began := time.Now()
			r := run(t, p)
			took := time.Since(began).Seconds() * 1000
			testsupport.Equal(t, r.Whole.Answered, 50, "%d responses")
			testsupport.Between(t, r.Whole.Latency.P50, 195, took, "p50 is %v ms")
		})
	}
}

// An open loop measures a stall as users would: by the requests that were due in it.
func TestStalledServerShowsInP99(t *testing.T) {
	testsupport.Long(t)
	const stall = 1200 * time.Millisecond
	// OnRequest delays responses until the end of the stall.
	began := time.Now()
	s := startSSP(t, sspsim.Options{
		Behaviour: sspsim.Behaviour{Latency: sspsim.Constant(2 * time.Millisecond)},
		OnRequest: func(*sspsim.Request) {
			if since := time.Since(began); since > time.Second && since < time.Second+stall {
				time.Sleep(time.Second + stall - since)
			}
		},
	})
	p := at(s.Addr(), 100, 3*time.Second)
	p.Connections = 8
	r := run(t, p)
	testsupport.AtLeast(t, r.Whole.Latency.P99, 600, "p99 is %.0f ms though the server stood still for %v of 3 s", stall)
	testsupport.AtLeast(t, r.Whole.Latency.Max, 1000, "the longest is %.0f ms, want about %v", stall)
}

func TestRequestsThatWaitForAConnectionAreTimedFromWhenTheyWereDue(t *testing.T) {
	t.Parallel()
	s := startSSP(t, sspsim.Options{Behaviour: sspsim.Behaviour{Latency: sspsim.Constant(100 * time.Millisecond)}})
	p := at(s.Addr(), 20, time.Second) // twice what one connection carries
	p.Connections = 1
	r := run(t, p)
	testsupport.MustTrue(t, r.Whole.Answered == 20, "%d responses, errors %v", r.Whole.Answered, r.Whole.Errors)
	// The last request is due after 950 ms and gets its response after 2 s.
	testsupport.AtLeast(t, r.Whole.Latency.Max, 1000, "the longest took %.0f ms, want at least 1000")
}

func TestResponsesToOtherRequestsAreFound(t *testing.T) {
	// A raw body starts with the number. Some bodies are in chunks.
	response := sspsim.Response{Echo: true, Kind: sspsim.Raw, Size: sspsim.Size{Constant: 40000},
		Chunked: sspsim.Every(3)}
	s := startSSP(t, sspsim.Options{Behaviour: sspsim.Behaviour{Response: response}})
	for name, look := range map[string]func(*Plan){
		"head": func(p *Plan) { p.Echo = true },
		"body": func(p *Plan) { p.EchoBody = true },
	} {
		p := closedPlan(s.Addr(), 60, 4)
		look(&p)
		if r := run(t, p); r.Whole.Answered != 60 {
			t.Fatalf("%s: %d responses, errors %v", name, r.Whole.Answered, r.Whole.Errors)
		}
		p.Templates = []Template{{Name: "fixed", Method: "GET", Path: "/bid?cb=0000000007"}}
		if r := run(t, p); r.Whole.Errors[wrongResponse] < 59 {
			t.Errorf("%s: errors %v, want 59 or 60 wrong responses", name, r.Whole.Errors)
		}
	}
}

func TestSummaryHoldsTheRecordedPhasesAndEachIsShown(t *testing.T) {
	s := startSSP(t, sspsim.Options{})
	p := at(s.Addr(), 200, 500*time.Millisecond)
	warm := p.Phases[0]
	warm.Name, warm.Unrecorded = "warm-up", true
	p.Phases = append([]Phase{warm}, p.Phases...)
	r := run(t, p)
	if len(r.Phases) != 2 || r.Phases[0].Answered != 100 || r.Whole.Answered != 100 || r.Whole.Seconds != 0.5 {
		t.Errorf("phases %+v, whole %+v", r.Phases, r.Whole)
	}
	testsupport.Equal(t, r.Phases[0].Name+" "+r.Phases[1].Name, "warm-up steady", "phases %q")
}

func TestClassesAreCountedApart(t *testing.T) {
	s := startSSP(t, sspsim.Options{})
	p := closedPlan(s.Addr(), 400, 4)
	p.Templates = []Template{
		{Name: "video", Method: "GET", Path: "/v"},
		{Name: "bid", Method: "POST", Path: "/b", JSON: true, Body: sspsim.Size{P50: 1300, P95: 3000}, Weight: 3},
	}
	r := run(t, p)
	if len(r.Whole.Classes) != 2 || r.Whole.Classes[0].Answered+r.Whole.Classes[1].Answered != 400 ||
		r.Whole.Classes[1].Answered < 250 {
		t.Errorf("classes %+v", r.Whole.Classes)
	}
	if c := s.Counters(); c.Requests != 400 || c.BadRequests != 0 {
		t.Errorf("the SSP saw %d requests, bad %d (%s)", c.Requests, c.BadRequests, c.LastBadRequest)
	}
	if !slices.ContainsFunc(r.Phases, func(s Summary) bool { return strings.Contains(s.Name, "steady") }) {
		t.Errorf("phases %+v", r.Phases)
	}
}
