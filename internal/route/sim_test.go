package route

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"adbuffer/internal/http1"
	"adbuffer/internal/http2"
	"adbuffer/internal/httpheader"
	"adbuffer/internal/pool"
	"adbuffer/internal/socket"
	"adbuffer/internal/ssp"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/upstream"
)

// simDialer connects a pool to a simulated SSP on real sockets.
type simDialer struct {
	addr     netip.AddrPort
	protocol upstream.Protocol
	http1    *http1.Options
}

func (d *simDialer) Addresses(context.Context) ([]upstream.Address, error) {
	return []upstream.Address{{Endpoint: upstream.Endpoint{Authority: d.addr.String()}, AddrPort: d.addr}}, nil
}

func (d *simDialer) Dial(ctx context.Context, addr upstream.Address, _ []upstream.Address, _ bool, owner upstream.Owner) (pool.Dialed, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr.AddrPort.String())
	if err != nil {
		return pool.Dialed{}, &upstream.Error{Outcome: upstream.ConnectFailed, Err: err}
	}
	sock := socket.New(c)
	switch d.protocol {
	case upstream.HTTP2:
		return pool.Dialed{Conn: http2.New(sock, owner, http2.Options{MaxStreams: 100, MaxResponseBytes: 1 << 20, MaxResponseHeaderBytes: 16 << 10})}, nil
	case upstream.HTTP1Pipelined:
		return pool.Dialed{Conn: http1.NewPipelined(sock, sock, owner, d.http1)}, nil
	default:
		return pool.Dialed{Conn: http1.New(sock, sock, owner, d.http1)}, nil
	}
}

// newSim returns an SSP whose pool sends to a simulated SSP over a protocol.
func newSim(t testing.TB, name string, protocol upstream.Protocol, b sspsim.Behaviour) *fakeSSP {
	t.Helper()
	o := sspsim.Options{Behaviour: b}
	if protocol == upstream.HTTP2 {
		o.Protocol = sspsim.H2C
	}
	sim, err := sspsim.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	d := &simDialer{
		addr: netip.MustParseAddrPort(sim.Addr()), protocol: protocol,
		http1: &http1.Options{MaxResponseBytes: 1 << 20, MaxResponseHeaderBytes: 16 << 10, Linger: 100 * ms, Depth: 8},
	}
	p := pool.New(pool.Options{
		SSP: name, MaxConns: 32, MaxHTTP2Conns: 2, MaxIdle: 32, MaxPending: 1000, PendingTimeout: time.Minute, MaxDials: 8,
		BackoffMin: ms, BackoffMax: ms, ConnectTimeout: time.Minute, Protocol: protocol, PipelineDepth: 8, MaxStreams: 100,
	}, d)
	t.Cleanup(func() {
		p.Close(context.Background())
		sim.Close()
	})
	policy := httpheader.NewPolicy(httpheader.PolicyOptions{})
	return &fakeSSP{t: t, pool: p, SSP: ssp.New(ssp.Options{Name: name, Scheme: "http", Path: "/bid", Policy: policy, PipelineAll: true}, p)}
}

var protocols = map[string]upstream.Protocol{"http1": upstream.HTTP1, "http1-pipelined": upstream.HTTP1Pipelined, "http2": upstream.HTTP2}

// TestAbandonedLegsChangeNoOtherResponse sends requests to simulated SSPs over real connections,
// and abandons legs all the time. The SSPs send each request's id back, so the test checks that
// each request gets its own responses.
func TestAbandonedLegsChangeNoOtherResponse(t *testing.T) {
	for name, protocol := range protocols {
		t.Run(name, func(t *testing.T) {
			sim := func(name string, p50, p99 time.Duration) *fakeSSP {
				return newSim(t, name, protocol, sspsim.Behaviour{
					Latency: sspsim.Lognormal(p50, p99), Response: sspsim.Response{NoBid: sspsim.Every(5)},
				})
			}
			fakes := []*fakeSSP{sim("a", ms, 4*ms), sim("b", ms, 20*ms), sim("c", 2*ms, 4*ms)}
			routes := []*Route{newRoute(ParallelFirst, fakes...), all(fakes, false, false, true), all(fakes, true, true, false), newRoute(Waterfall, fakes...)}
			p := &Process{InFlight: new(ssp.InFlight), Panicked: func(v any, stack []byte) { t.Errorf("%v\n%s", v, stack) }}
			budget := upstream.NewBudget(1 << 24)
			var mu sync.Mutex
			outcomes := map[upstream.Outcome]int{}
			var wg sync.WaitGroup
			for w := range 8 {
				wg.Go(func() {
					r := new(client)
					for n := range 50 {
						id := fmt.Sprintf("%d-%d-", w, n)
						r.set(t, upstream.POST, "", `{"id":"`+id+`"}`, "Content-Type: application/json")
						r.Budget, r.Deadline = budget, r.Received.Add(time.Minute)
						res := routes[(w+n)%len(routes)].Do(&r.Request, nil, p)
						checkID(t, &res, id)
						mu.Lock()
						outcomes[res.Outcome]++
						mu.Unlock()
						res.Release()
						r.poison()
					}
				})
			}
			wg.Wait()
			for p.InFlight.Now() > 0 || budget.Used() > 0 {
				runtime.Gosched()
			}
			if outcomes[upstream.Fill] == 0 || outcomes[upstream.Merged] != 200 || len(outcomes) > 3 {
				t.Errorf("outcomes: %v", outcomes)
			}
		})
	}
}

// checkID checks that all documents in a response are the responses to id.
func checkID(t *testing.T, res *Result, id string) {
	if res.Err != nil {
		t.Errorf("request %s: %v", id, res.Err)
		return
	}
	b := res.Exchange.Response.Body
	mine := bytes.Count(b, []byte(`"id":"`+id+`"`))
	if res.Outcome == upstream.Fill && mine == 0 || bytes.Count(b, []byte(`"seatbid"`)) != mine {
		t.Errorf("request %s has the response %s", id, b)
	}
}
