package load

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

func TestMain(m *testing.M) {
	if os.Getenv(upstreamEnv) != "" {
		serveUpstream()
		return
	}
	testsupport.Main(m)
}

// upstreamEnv makes the test's executable a constant upstream.
const upstreamEnv = "LOADTEST_UPSTREAM"

// constant responds to all requests with a kilobyte, at the lowest cost.
func constant() (addr string, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	body := make([]byte, 1000)
	go fasthttp.Serve(ln, func(ctx *fasthttp.RequestCtx) { ctx.Response.SetBodyRaw(body) })
	return ln.Addr().String(), nil
}

func serveUpstream() {
	addr, err := constant()
	if err != nil {
		panic(err)
	}
	fmt.Println(addr)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent closes it
}

// startUpstream starts a constant upstream in a process of its own, so that this process has the cost of the
// generator alone.
func startUpstream(t testing.TB) (addr string) {
	t.Helper()
	self, err := os.Executable()
	testsupport.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env, cmd.Stderr = append(os.Environ(), upstreamEnv+"=1"), os.Stderr
	in, err := cmd.StdinPipe()
	testsupport.NoError(t, err)
	out, err := cmd.StdoutPipe()
	testsupport.NoError(t, err)
	testsupport.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	testsupport.NoError(t, err)
	return strings.TrimSpace(line)
}

func startSSP(t *testing.T, o sspsim.Options) *sspsim.SSP {
	t.Helper()
	s, err := sspsim.Start(o)
	testsupport.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// at returns a plan for addr: an open loop with evenly spaced requests in one phase.
func at(addr string, rate float64, length time.Duration) Plan {
	return Plan{Addr: addr, Protocol: KeepAlive, Open: true, Connections: 64, Timeout: 5 * time.Second,
		Phases:    []Phase{{Name: "steady", Duration: length, From: rate, To: rate}},
		Templates: []Template{{Name: "ad", Method: "GET", Path: "/bid?cb={n}"}}}
}

func run(t testing.TB, p Plan) *Result {
	t.Helper()
	r, err := Run(t.Context(), p, nil)
	testsupport.NoError(t, err)
	return r
}

// closedPlan returns a closed loop with n requests on conns connections.
func closedPlan(addr string, n, conns int) Plan {
	p := at(addr, 0, time.Minute)
	p.Open, p.Requests, p.Connections = false, n, conns
	return p
}
