package load

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

// The cleaner of fasthttp's worker pool sleeps for up to 10 s after the close of its server.
func TestMain(m *testing.M) {
	testsupport.Main(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

func startSSP(t *testing.T, o sspsim.Options) *sspsim.SSP {
	t.Helper()
	s, err := sspsim.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// at returns a plan for addr: an open loop with evenly spaced requests in one phase.
func at(addr string, rate float64, length time.Duration) Plan {
	return Plan{Addr: addr, Host: addr, Protocol: KeepAlive, Open: true, Connections: 64, Timeout: 5 * time.Second,
		Phases:    []Phase{{Name: "steady", Duration: length, From: rate, To: rate}},
		Templates: []Template{{Name: "ad", Method: "GET", Path: "/bid?cb={n}"}}}
}

func run(t *testing.T, p Plan) *Result {
	t.Helper()
	r, err := Run(t.Context(), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// closedPlan returns a closed loop with n requests on conns connections.
func closedPlan(addr string, n, conns int) Plan {
	p := at(addr, 0, time.Minute)
	p.Open, p.Requests, p.Connections = false, n, conns
	return p
}

// trust makes the plan use TLS where s does.
func trust(p *Plan, s *sspsim.SSP) { p.Encrypted, p.Authority = s.CA().PEM() != nil, s.CA().PEM() }
