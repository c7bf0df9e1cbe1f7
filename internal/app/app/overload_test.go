package app

import (
	"encoding/json"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// Goroutines of the test take all cores. The lag that adbuffer measures makes it refuse the sheddable
// route and not the critical one, and it says so. When the goroutines have ended, it serves both.
func TestAnAdbufferWithoutCPURefusesAndSaysSo(t *testing.T) {
	testsupport.Long(t)
	s := setup{server: "overload: {enabled: false}", ssps: []string{at("a", sim(t, sspsim.Options{}))}, routes: []string{
		"name: first, match: {path: /first}, priority: critical, ssps: [a]", "name: last, match: {path: /last}, priority: sheddable, ssps: [a]",
	}}
	v := runAlone(t, s)
	v.want("/last", "a")
	var idle atomic.Bool
	var spinning sync.WaitGroup
	for range 20 * runtime.GOMAXPROCS(0) {
		spinning.Go(func() {
			for !idle.Load() {
				for end := time.Now().Add(5 * time.Millisecond); time.Now().Before(end); {
				}
				runtime.Gosched()
			}
		})
	}
	s.server = "overload: {target: 1ms}"
	v.reload(s)
	var refused response
	v.await("a sheddable request is refused", func() bool {
		refused = v.get("/last")
		return refused.status == 503
	})
	testsupport.True(t, strings.Contains(refused.body, "priority sheddable"), "the response is %+v", refused)
	var pools struct {
		Totals struct {
			Overload struct {
				Overloaded bool
				Since      time.Time
				Refused    map[string]int
			}
		}
	}
	testsupport.NoError(t, json.Unmarshal([]byte(v.admin("/pools")), &pools))
	if s := pools.Totals.Overload; !s.Overloaded || s.Since.IsZero() || s.Refused["sheddable"] == 0 || s.Refused["critical"] != 0 {
		t.Errorf("/pools says %+v", s)
	}
	x := v.app.explain([]byte("GET /last HTTP/1.1\r\nHost: a\r\n\r\n"), netip.MustParseAddr("127.0.0.1"))
	text := x.String()
	testsupport.True(t, strings.Contains(text, "adbuffer has been overloaded since ") && x.Priority == "sheddable", "explain says:\n%s", text)
	idle.Store(true)
	spinning.Wait()
	v.await("all requests are served again", func() bool { return v.get("/last").status == 200 && !v.app.overload.State().Overloaded })
	v.want("/first", "a")
	if x := v.app.explain([]byte("GET /last HTTP/1.1\r\nHost: a\r\n\r\n"), netip.MustParseAddr("127.0.0.1")); len(x.Now) != 0 {
		t.Errorf("explain says %v", x.Now)
	}
}
