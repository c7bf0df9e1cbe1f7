package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/machine/overload"
	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

// refusing returns a gate that refuses all normal requests, and pauses their connections for more than
// 200 ms in the mean.
func refusing() *overload.Gate {
	g := new(overload.Gate)
	g.Configure(overload.Options{Enabled: true, Target: 5 * time.Millisecond})
	for s := g.State(); s.PauseMs < 200 || s.Refusing["normal"] < 1-1e-6; s = g.State() {
		g.Observe(time.Second, 100*time.Millisecond)
		for range 2000 * runtime.GOMAXPROCS(0) {
			g.Refuse(overload.Normal)
		}
	}
	return g
}

func TestAnOverloadedAdbufferRefusesByPriority(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		priority overload.Priority
		noAd     bool
		status   int
		source   string
	}{
		{overload.Normal, false, 503, "proxy/overloaded"},
		{overload.Normal, true, 204, "proxy/overloaded"},
		{overload.Critical, false, 200, "ssp/a"},
	} {
		m := newModeProxy(t, route.Single, func(o *proxy.Options, rt *route.Route) {
			overTLS(o, rt)
			o.Overload, rt.Priority, rt.NoAdOnError = refusing(), c.priority, c.noAd
		}, bids("a", "{}"))
		for _, http2 := range []bool{false, true} {
			res, body := m.ask(m.client(http2), "POST", "/fill", "{}")
			m.want(res, c.status, c.source)
			if c.status != 503 {
				continue
			}
			for _, want := range []string{"server.overload", "routes[].priority", "priority normal"} {
				testsupport.True(t, strings.Contains(body, want), "the body is %s, want %s in it", body, want)
			}
			testsupport.Equal(t, res.Header.Get("Retry-After"), "1", "Retry-After is %q")
		}
	}
}

// So the log names the setting, without the access log.
func TestTooLittleCPUIsALimitOfTheService(t *testing.T) {
	t.Parallel()
	m := newModeProxy(t, route.Single, func(o *proxy.Options, _ *route.Route) { o.Overload = refusing() }, bids("a", "{}"))
	for _, l := range m.p.Limits() {
		if l.Setting == "server.overload.target" {
			testsupport.True(t, l.Used == 1000 && l.Limit == 5 && l.Reached != 0, "the limit is %+v", l)
			return
		}
	}
	t.Error("no limit is that of server.overload")
}

// A refusal does not wait for the body, over HTTP/1 if the client sends Expect: 100-continue.
func TestAnOverloadedAdbufferRefusesBeforeTheBody(t *testing.T) {
	t.Parallel()
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.Overload = refusing() }), bids("a", "{}"))
	c := m.dialTLS("http/1.1")
	fmt.Fprint(c, "POST /fill HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	testsupport.True(t, err == nil && res.StatusCode == 503, "over HTTP/1: %v, %v", res, err)
	f := m.frames(t)
	f.request(1, false, ":method", "POST", ":scheme", "https", ":authority", "a", ":path", "/fill", "content-length", "1000")
	a := f.responseTo(1)
	testsupport.True(t, a.status == "503" && a.source == "proxy/overloaded", "over HTTP/2: %+v", a)
	testsupport.AtLeast(t, m.series("adbuffer_overload_refused_total", "normal"), 2, "%v requests are counted")
}

// After a refusal the connection stays, and its next request waits. The time of the wait counts for its
// deadline. The next pause begins after the next refusal only.
func TestAConnectionIsNotReadForAPauseAfterARefusal(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(t *testing.T, m *modeProxy) func(fields ...string) response{
		"HTTP/1": func(t *testing.T, m *modeProxy) func(fields ...string) response {
			c := m.dialTLS("http/1.1")
			in := bufio.NewReader(c)
			return func(fields ...string) response {
				fmt.Fprintf(c, "GET /fill HTTP/1.1\r\nHost: a\r\n%s\r\n", strings.Join(append(fields, ""), "\r\n"))
				res, err := http.ReadResponse(in, nil)
				testsupport.NoError(t, err)
				body, _ := io.ReadAll(res.Body)
				return response{status: fmt.Sprint(res.StatusCode), source: res.Header.Get("X-Adbuffer-Source"), body: string(body)}
			}
		},
		"HTTP/2": func(t *testing.T, m *modeProxy) func(fields ...string) response {
			f, id := m.frames(t), uint32(1)
			return func(fields ...string) response {
				all := []string{":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/fill"}
				for _, field := range fields {
					name, value, _ := strings.Cut(field, ": ")
					all = append(all, strings.ToLower(name), value)
				}
				f.request(id, true, all...)
				id += 2
				return f.responseTo(id - 2)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := refusing()
			m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.Overload = g }), bids("a", "{}"))
			send := connect(t, m)
			least := time.Duration(g.State().PauseMs/2) * time.Millisecond
			began := time.Now()
			if a := send(); a.status != "503" || a.source != "proxy/overloaded" {
				t.Fatalf("the first request: %+v", a)
			}
			g.Configure(overload.Options{})
			a := send("X-Adbuffer-Timeout-Ms: 1")
			testsupport.AtLeast(t, time.Since(began), least, "the second request had its response after %v, want at least %v", least)
			testsupport.True(t, a.status == "503" && a.source == "proxy/overloaded" && strings.Contains(a.body, "after it came"), "the second request, with a deadline of 1 ms: %+v", a)
			if a := send("X-Adbuffer-Timeout-Ms: 60000"); a.status != "200" {
				t.Errorf("the third request: %+v", a)
			}
		})
	}
}

// While adbuffer is overloaded, a request that has waited in its socket for longer than its deadline is refused,
// also if its priority is critical: its response would be late. Here the request waits behind another request on
// its connection.
func TestARequestThatIsReadTooLateIsRefused(t *testing.T) {
	t.Parallel()
	for g, want := range map[*overload.Gate]string{new(overload.Gate): "deadline", refusing(): "proxy/overloaded"} {
		m := newModeProxy(t, route.Single, func(o *proxy.Options, rt *route.Route) {
			o.Overload, rt.Priority = g, overload.Critical
		}, bidder{name: "a", handler: func(http.ResponseWriter, *http.Request) { time.Sleep(60 * time.Millisecond) }})
		c := m.dial()
		for _, timeout := range []int{60000, 20} {
			fmt.Fprintf(c, "GET /fill HTTP/1.1\r\nHost: a\r\nX-Adbuffer-Timeout-Ms: %d\r\n\r\n", timeout)
		}
		in := bufio.NewReader(c)
		for i := range 2 {
			res, err := http.ReadResponse(in, nil)
			testsupport.NoError(t, err)
			body, _ := io.ReadAll(res.Body)
			source := res.Header.Get("X-Adbuffer-Source")
			if i == 0 && res.StatusCode != 200 || i == 1 && !strings.Contains(source, want) || strings.Contains(string(body), "after it came") != (i == 1 && g.Overloaded()) {
				t.Errorf("overloaded: %v; response %d has status %d, source %s and body %s", g.Overloaded(), i, res.StatusCode, source, body)
			}
		}
	}
}

// Before its pause is over, the client has sent a request and closed the connection.
func TestARequestOfAClientThatLeftDuringAPauseIsNotSent(t *testing.T) {
	t.Parallel()
	g := refusing()
	m := newModeProxy(t, route.Single, func(o *proxy.Options, rt *route.Route) { o.Overload = g }, bids("a", "{}"))
	c := m.dial()
	fmt.Fprint(c, "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n")
	if res, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || res.StatusCode != 503 {
		t.Fatal(res, err)
	}
	g.Configure(overload.Options{})
	fmt.Fprint(c, "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n")
	c.Close()
	m.await(1, "adbuffer_requests_total", "client_gone")
	testsupport.Equal(t, m.series("adbuffer_requests_total", "fill"), 0, "%v requests were sent")
}
