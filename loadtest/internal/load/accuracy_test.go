package load

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

// The latencies are long, so that the delays of a busy machine stay within 5 %.
const (
	fast = 200 * time.Millisecond
	slow = 800 * time.Millisecond
)

func TestLatencyOfAKnownSSPIsMeasuredWithinFivePercent(t *testing.T) {
	testsupport.Long(t)
	const fast, slow = 5 * fast, 5 * slow // on a busy machine the clients of four tests delay each other
	bimodal := sspsim.Constant(fast)
	bimodal.Slow, bimodal.SlowShare = sspsim.Distribution{Constant: sspsim.Duration(slow)}, 0.04
	for _, c := range []struct {
		name     string
		ssp      sspsim.Protocol
		protocol Protocol
		depth    int
	}{
		{"keep-alive", sspsim.HTTP1, KeepAlive, 1},
		{"close", sspsim.HTTP1, Close, 1},
		{"tls", sspsim.TLSHTTP1, KeepAlive, 1},
		{"http2", sspsim.TLSHTTP2, HTTP2, 64},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			try(t, func() []string {
				s := startSSP(t, sspsim.Options{Protocol: c.ssp, Behaviour: sspsim.Behaviour{Latency: bimodal},
					Seed: 3})
				p := at(s.Addr(), 125, 4*time.Second)
				p.Protocol, p.Depth, p.Connections, p.Timeout = c.protocol, c.depth, 200, testsupport.Patience
				if c.protocol == HTTP2 {
					p.Connections = 4
				}
				trust(&p, s)
				stop := lateness(t)
				r := run(t, p)
				late := stop()
				if r.Whole.Answered != 500 || r.Whole.Failed != 0 {
					t.Fatalf("%d responses, errors %v", r.Whole.Answered, r.Whole.Errors)
				}
				if n := r.Connections; n.TCP != s.Counters().Connections || n.TLS != s.Counters().Handshakes ||
					c.protocol != Close && n.Reused+n.TCP < 500 || n.Reused >= 500 {
					t.Errorf("%+v, the SSP saw %d connections and %d handshakes", n, s.Counters().Connections,
						s.Counters().Handshakes)
				}
				return append(within("p50", r.Whole.Latency.P50, fast, late(0.5)),
					within("p99", r.Whole.Latency.P99, slow, late(0.99))...)
			})
		})
	}
}

// try measures up to four times, because other processes of the machine may add to a latency. It
// fails with the last error. A wrong generator fails each time.
func try(t *testing.T, measure func() (faults []string)) {
	t.Helper()
	var faults []string
	for range 4 {
		if faults = measure(); len(faults) == 0 {
			return
		}
		t.Log(faults)
	}
	t.Error(faults)
}

// within compares a quantile with the SSP's latency. late is the time that goroutines of this process
// waited for a processor in the same run.
func within(what string, got float64, want, late time.Duration) []string {
	least, most := float64(want)/1e6*0.95, float64(want+waitsOfARequest*late)/1e6*1.05
	if got < least || got > most {
		return []string{fmt.Sprintf("%s is %.1f ms, want %.1f to %.1f ms", what, got, least, most)}
	}
	return nil
}

// A closed loop sends nothing while the server stalls, so only one request of each connection is
// slow. An open loop measures the stall as users would.
func TestStalledServerShowsInP99OfOpenLoopsOnly(t *testing.T) {
	testsupport.Long(t)
	const stall = 1200 * time.Millisecond
	open := stalledRun(t, true, stall)
	testsupport.AtLeast(t, open.Whole.Latency.P99, 600, "open loop: p99 is %.0f ms though the server stood still for %v of 3 s", stall)
	testsupport.AtLeast(t, open.Whole.Latency.Max, 1000, "open loop: the longest is %.0f ms, want about %v", stall)
	closed := stalledRun(t, false, stall)
	testsupport.AtMost(t, closed.Whole.Latency.P99, 600, "closed loop: p99 is %.0f ms: it should be blind to the stall")
}

// stalledRun loads an SSP that is slow for a while in the middle of 3 s.
func stalledRun(t *testing.T, open bool, stall time.Duration) *Result {
	t.Helper()
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
	p := at(s.Addr(), 300, 3*time.Second)
	p.Connections = 8
	p.Open = open
	return run(t, p)
}

func TestRequestsThatWaitForAConnectionAreTimedFromWhenTheyWereDue(t *testing.T) {
	s := startSSP(t, sspsim.Options{Behaviour: sspsim.Behaviour{Latency: sspsim.Constant(100 * time.Millisecond)}})
	p := at(s.Addr(), 20, time.Second) // twice what one connection carries
	p.Connections = 1
	r := run(t, p)
	if r.Whole.Answered != 20 {
		t.Fatalf("%d responses, errors %v", r.Whole.Answered, r.Whole.Errors)
	}
	// The last request is due after 950 ms and gets its response after 2 s.
	testsupport.AtLeast(t, r.Whole.Latency.Max, 1000, "the longest took %.0f ms, want at least 1000")
}

func TestResponsesToOtherRequestsAreFound(t *testing.T) {
	for _, c := range []struct {
		name     string
		ssp      sspsim.Protocol
		protocol Protocol
		look     func(*Plan)
	}{
		{"in the head", sspsim.HTTP1, KeepAlive, func(p *Plan) { p.Echo = true }},
		{"in the body", sspsim.HTTP1, KeepAlive, func(p *Plan) { p.EchoBody = true }},
		{"in the body, TLS", sspsim.TLSHTTP1, KeepAlive, func(p *Plan) { p.EchoBody = true }},
		{"in the body, http2", sspsim.TLSHTTP2, HTTP2, func(p *Plan) { p.EchoBody = true }},
	} {
		t.Run(c.name, func(t *testing.T) { findsWrongResponses(t, c.ssp, c.protocol, c.look) })
	}
}

func findsWrongResponses(t *testing.T, ssp sspsim.Protocol, protocol Protocol, look func(*Plan)) {
	// A raw body starts with the number. Some bodies are in chunks.
	response := sspsim.Response{Echo: true, Kind: sspsim.Raw, Size: sspsim.Size{Constant: 40000},
		Chunked: sspsim.Every(3)}
	s := startSSP(t, sspsim.Options{Protocol: ssp, Behaviour: sspsim.Behaviour{Response: response}})
	p := closedPlan(s.Addr(), 200, 4)
	p.Protocol = protocol
	trust(&p, s)
	look(&p)
	if r := run(t, p); r.Whole.Answered != 200 {
		t.Fatalf("%d responses, errors %v", r.Whole.Answered, r.Whole.Errors)
	}
	p.Templates = []Template{{Name: "fixed", Method: "GET", Path: "/bid?cb=0000000007"}}
	if r := run(t, p); r.Whole.Errors[wrongResponse] < 199 {
		t.Errorf("errors %v, want 199 or 200 wrong responses", r.Whole.Errors)
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
	p.Threads = 2
	p.Templates = []Template{
		{Name: "video", Method: "GET", Path: "/v"},
		{Name: "bid", Method: "POST", Path: "/b", JSON: true, Body: sspsim.Size{P50: 1300, P95: 3000}, Weight: 3},
	}
	r := run(t, p)
	if len(r.Whole.Classes) != 2 || r.Whole.Classes[0].Answered+r.Whole.Classes[1].Answered != 400 ||
		r.Whole.Classes[1].Answered < 250 {
		t.Errorf("classes %+v", r.Whole.Classes)
	}
	if c := s.Counters(); c.Requests != 400 || c.BadRequests != 0 || c.RequestBodyBytes == 0 {
		t.Errorf("the SSP saw %d requests, bad %d (%s)", c.Requests, c.BadRequests, c.LastBadRequest)
	}
	if !slices.ContainsFunc(r.Phases, func(s Summary) bool { return strings.Contains(s.Name, "steady") }) {
		t.Errorf("phases %+v", r.Phases)
	}
}
