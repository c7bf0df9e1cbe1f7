package proxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"adbuffer/internal/http1server"
	"adbuffer/internal/route"
	"adbuffer/internal/ssp"
	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

// A handler that panics fails only its own request; fasthttp alone would end the process. Here it
// panics because its SSP was not made by New.
func TestAPanicGets500IsCountedAndLoggedAndClosesNothing(t *testing.T) {
	table := route.NewTable([]*route.Route{{Name: "default", Match: route.Match{Path: "/fillbuffer"}, Targets: []route.Target{{SSP: new(ssp.SSP)}}}})
	core, logged := observer.New(zap.ErrorLevel)
	p := New(Options{
		Options: http1server.Options{
			MaxConnections: 10, MaxStreams: 250, MaxBufferedBytes: 1000, MaxHeaderBytes: 1024, MaxBodyBytes: 100,
			ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
		},
		MaxInFlight: 10, ErrorDetail: true,
		Deadline: DeadlineOptions{Default: time.Minute, Max: time.Minute},
	}, table, zap.New(core), nil, func() bool { return true })
	l := testsupport.Listen(t)
	served := make(chan error, 1)
	go func() { served <- p.Serve(l) }()

	for range 2 {
		c, err := net.Dial("tcp", l.Addr().String())
		testsupport.NoError(t, err)
		io.WriteString(c, "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
		r := bufio.NewReader(c)
		res, err := http.ReadResponse(r, nil)
		testsupport.NoError(t, err)
		body, _ := io.ReadAll(res.Body)
		if want := `{"error":"internal","detail":"adbuffer failed; see its log; see the runbook, entry internal"}` + "\n"; res.StatusCode != 500 || string(body) != want ||
			res.Header.Get(sourceField) != "proxy/internal" || !res.Close {
			t.Errorf("%s %v %s, want a 500 that closes, with %s", res.Status, res.Header, body, want)
		}
		if n, err := r.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Error("the connection was not closed")
		}
		c.Close()
	}

	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(p.Metrics())
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP adbuffer_buffered_bytes Bytes of request and response bodies held.
# TYPE adbuffer_buffered_bytes gauge
adbuffer_buffered_bytes 0
# HELP adbuffer_in_flight_requests Requests and fan-out legs in flight.
# TYPE adbuffer_in_flight_requests gauge
adbuffer_in_flight_requests 0
`), "adbuffer_buffered_bytes", "adbuffer_in_flight_requests"); err != nil {
		t.Error(err)
	}
	testsupport.Equal(t, p.panics.Load(), 2, "%d panics counted")
	testsupport.Equal(t, p.current().routes[0].outcomes[upstream.Internal].Load(), 2, "%d requests of the route ended as internal")
	if logs := logged.FilterMessage("a request made the handler panic").All(); len(logs) != 2 || !strings.Contains(logs[0].ContextMap()["stack"].(string), "route") {
		t.Errorf("the log has %v, want each panic with its stack", logs)
	}
	testsupport.Equal(t, p.Drain(context.Background()), 0, "%d requests cut")
	if err := <-served; err != nil {
		t.Error(err)
	}
}
