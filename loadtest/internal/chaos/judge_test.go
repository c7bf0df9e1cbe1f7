package chaos

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

// quiet is a run without processes.
func quiet(ssps ...string) *run {
	b := &brokenPromises{say: func(string, ...any) {}}
	r := &run{Rig: &rig.Rig{Say: func(string, ...any) {}}, broken: b, log: newRequestLog(max(1, len(ssps)), b)}
	for _, name := range ssps {
		r.ssps = append(r.ssps, &ssp{sspKind: sspKind{name: name}})
	}
	return r
}

// none stands for no promise.
const none promise = ""

// wantBroken checks that this promise was broken and no other.
func wantBroken(t *testing.T, r *run, want promise) {
	t.Helper()
	for _, p := range promises {
		n, examples := r.broken.of(string(p))
		if broken := n > 0; broken != (p == want) {
			t.Errorf("%q: broken %d times: %v", p, n, examples)
		}
	}
}

func TestSSPsAreSentWhatClientsSent(t *testing.T) {
	const length = 300
	body := string(requestBody(1, length))
	testsupport.MustEqual(t, len(body), length, "the body has %d bytes")
	target := fmt.Sprintf("/bid?cb=1&m=POST&len=%d", length)
	for _, row := range []struct {
		name   string
		target string
		method string
		body   string
		want   promise
	}{
		{"as sent", target, "POST", body, none},
		{"another method", target, "GET", body, altered},
		{"a shorter body", target, "POST", body[:length-1], altered},
		{"a byte of another request", target, "POST", strings.Replace(body, body[200:201], "0", 1), altered},
		{"no such request", strings.Replace(target, "cb=1", "cb=2", 1), "POST", body, altered},
		{"another path", "/x" + target, "POST", body, altered},
		{"to be refused", target + "&refuse=a-broken-head", "POST", body, altered},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := quiet("a")
			r.log.token()
			r.log.receive(0, "a", "calm", &sspsim.Request{Method: row.method, Target: row.target, Body: []byte(row.body)})
			wantBroken(t, r, row.want)
		})
	}
}

func TestAPOSTIsProcessedOnceByEachSSP(t *testing.T) {
	r := quiet("a", "b")
	for range 200 {
		r.log.token()
	}
	give := func(i int, method string) {
		t.Helper()
		r.log.receive(i, "", "", &sspsim.Request{Method: method, Target: "/bid?cb=130&len=0&m=" + method})
	}
	give(0, "POST")
	give(1, "POST") // as parallel-all does
	wantBroken(t, r, none)
	give(1, "POST")
	wantBroken(t, r, twice)
	r = quiet("a")
	r.log.issued.Store(200)
	give(0, "GET")
	give(0, "GET") // may be sent again
	wantBroken(t, r, none)
	if !r.log.received(130, 0) || r.log.received(131, 0) || r.log.received(100_000, 0) {
		t.Error("the log does not know which SSP received which request")
	}
}

func TestResponsesAreJudged(t *testing.T) {
	const calm = 5
	merged := func(a, b string) string {
		return `{"results":[{"ssp":"a","status":200,"content_type":"application/json","body":` + a + `},` + b + `]}`
	}
	const bid, other = `{"id":"7","seatbid":[]}`, `{"id":"8","seatbid":[]}`
	for _, row := range []struct {
		name   string
		change func(a *request, p *response)
		want   promise
	}{
		{"a bid", func(*request, *response) {}, none},
		{"another request's number", func(_ *request, p *response) { p.header.Set("X-Echo-Cb", "8") }, mixed},
		{"nothing, of one SSP", func(_ *request, p *response) { p.status, p.header = 204, http.Header{"X-Adbuffer-Source": {"ssp/a"}} }, mixed},
		{"nothing, of several SSPs", func(a *request, p *response) {
			a.fansOut, p.status, p.header = true, 204, http.Header{"X-Adbuffer-Source": {"ssp/a"}}
		}, none},
		{"another request's bid", func(_ *request, p *response) { p.body = []byte(other) }, mixed},
		{"half a bid", func(_ *request, p *response) { p.body = p.body[:10] }, mixed},
		{"a response to no request", func(_ *request, p *response) { p.body = []byte(sspsim.Poison) }, mixed},
		{"bytes", func(_ *request, p *response) {
			p.header.Set("Content-Type", "application/octet-stream")
			p.body = []byte("7xxx")
		}, none},
		{"another request's bytes", func(_ *request, p *response) {
			p.header.Set("Content-Type", "application/octet-stream")
			p.body = []byte("8xxx")
		}, mixed},
		{"half a VAST document", func(_ *request, p *response) {
			p.header.Set("Content-Type", "application/xml")
			p.body = []byte(`<VAST><Ad id="7">`)
		}, mixed},
		{"in the allowance", func(a *request, p *response) { p.took = a.deadline + time.Second }, none},
		{"too late", func(a *request, p *response) { p.took = a.deadline + time.Second + 2 }, late},
		{"a reason of adbuffer's own", func(_ *request, p *response) {
			p.status, p.header = 504, http.Header{"X-Adbuffer-Source": {"proxy/deadline"}}
		}, none},
		{"with another status", func(_ *request, p *response) {
			p.status, p.header = 502, http.Header{"X-Adbuffer-Source": {"proxy/deadline"}}
		}, refused},
		{"refused", func(_ *request, p *response) {
			p.status, p.header = 400, http.Header{"X-Adbuffer-Source": {"proxy/bad_request"}}
		}, refused},
		{"a broken request that is refused", func(a *request, p *response) { a.broken, p.status, p.header = "x", 400, http.Header{} }, none},
		{"a broken request that is forwarded", func(a *request, _ *response) { a.broken = "x" }, refused},
		{"merged", func(_ *request, p *response) {
			p.header.Set("X-Adbuffer-Source", "proxy/merged")
			p.body = []byte(merged(bid, `{"ssp":"b","error":"deadline"}`))
		}, none},
		{"merged with another request's bid", func(_ *request, p *response) {
			p.header.Set("X-Adbuffer-Source", "proxy/merged")
			p.body = []byte(merged(other, `{"ssp":"b","status":204}`))
		}, mixed},
		{"merged without an SSP", func(_ *request, p *response) {
			p.header.Set("X-Adbuffer-Source", "proxy/merged")
			p.body = []byte(`{"results":[]}`)
		}, mixed},
		{"merged that cannot be parsed", func(_ *request, p *response) {
			p.header.Set("X-Adbuffer-Source", "proxy/merged")
			p.body = []byte(`{"results":[`)
		}, mixed},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := quiet("a", "b")
			a := &request{token: 7, method: "GET", deadline: calm * time.Millisecond, st: &instance{}}
			p := &response{status: 200, body: []byte(bid), header: http.Header{"X-Adbuffer-Source": {"ssp/a"}, "X-Echo-Cb": {"7"}, "Content-Type": {"application/json"}}}
			row.change(a, p)
			r.judge(a, p, 0, 0)
			wantBroken(t, r, row.want)
		})
	}
}

// Only the limit of an SSP that a request may go to drops it, and then no SSP receives it.
func TestDroppedRequestsAreJudged(t *testing.T) {
	const shaped, limited, merged = "shaped", "qps_limit", "merged"
	for _, row := range []struct {
		method, path, reason string
		status               int
		dropper              string // the SSP that dropped, in a merged response
		received             int    // the SSP that received the request; -1: none
		want                 promise
	}{
		{"GET", "/single/a", shaped, 204, "", -1, none},
		{"POST", "/split", shaped, 204, "", -1, none},
		{"GET", "/single/a", shaped, 503, "", -1, refused},
		{"GET", "/single/a", shaped, 204, "", 0, refused},
		{"GET", "/split", shaped, 204, "", 1, refused},
		{"HEAD", "/single/a", shaped, 204, "", -1, refused},
		{"GET", "/single/b", shaped, 204, "", -1, refused},
		{"GET", "/group", shaped, 204, "", -1, refused},
		{"GET", "/waterfall", shaped, 204, "", -1, refused},
		{"HEAD", "/single/a", limited, 503, "", -1, none},
		{"GET", "/waterfall", limited, 503, "", 1, none},
		{"GET", "/single/b", limited, 503, "", -1, refused},
		{"GET", "/turns", limited, 503, "", -1, refused},
		{"GET", "/all", merged, 200, "a", 1, none},
		{"GET", "/all", merged, 200, "a", 0, mixed},
		{"GET", "/all", merged, 200, "b", 0, mixed},
	} {
		r := quiet("a", "b")
		r.ssps[0].shaped = true
		a := &request{token: r.log.token(), method: row.method, path: row.path, deadline: time.Second,
			fansOut: row.path == "/waterfall" || row.path == "/all"}
		if row.received >= 0 {
			r.log.receive(row.received, "x", "calm", &sspsim.Request{Method: row.method, Target: "/bid?" + a.query()})
		}
		body := `{"results":[{"ssp":"a","status":204},{"ssp":"b","status":204}]}`
		body = strings.Replace(body, fmt.Sprintf("%q,\"status\":204", row.dropper), fmt.Sprintf("%q,\"error\":\"shaped\"", row.dropper), 1)
		r.judge(a, &response{status: row.status, body: []byte(body), header: http.Header{"X-Adbuffer-Source": {"proxy/" + row.reason}}}, 0, 0)
		t.Logf("%+v", row)
		wantBroken(t, r, row.want)
	}
}

// Only a stall of the machine that was measured while the request was in flight excuses a failure.
func TestOnlyAMeasuredStallExcusesAndIsCounted(t *testing.T) {
	const second = time.Second
	own := func(status int, reason string) *response {
		return &response{status: status, header: http.Header{"X-Adbuffer-Source": {"proxy/" + reason}}}
	}
	for _, row := range []struct {
		name    string
		healthy string
		p       *response
		took    time.Duration
		stalled time.Duration
		want    promise
		excused promise
	}{
		{"late without a stall", "", own(504, "deadline"), 3 * second, 0, late, none},
		{"late by more than the stall", "", own(504, "deadline"), 5 * second, 2 * second, late, none},
		{"late by the stall", "", own(504, "deadline"), 3 * second, 2 * second, none, late},
		{"408 after a short stall", "", own(408, "timeout"), 0, 2 * second, refused, none},
		{"408 after a stall as long as the timeout", "", own(408, "timeout"), 0, readTimeout, none, refused},
		{"a healthy SSP that failed without a stall", "a", own(504, "deadline"), second, 0, spared, none},
		{"a healthy SSP that failed in a stall", "a", own(504, "deadline"), second, second, none, spared},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := quiet("a")
			r.healthy.sent.Store(100)
			r.healthy.succeeded.Store(100)
			row.p.took = row.took
			r.judge(&request{token: 7, method: "GET", deadline: second, healthy: row.healthy}, row.p, row.stalled, 0)
			r.judgeHealthy()
			wantBroken(t, r, row.want)
			for _, p := range promises {
				if n, _ := r.excused.of(string(p)); (n == 1) != (p == row.excused) {
					t.Errorf("%s: %d excuses", p, n)
				}
			}
		})
	}
}

// A process without descriptors cannot dial a healthy SSP, so only such failures do not count then.
func TestFailuresToDialDoNotCountWithoutDescriptors(t *testing.T) {
	for source, want := range map[string]uint64{"proxy/local_error": 0, "proxy/pending_timeout": 0, "proxy/deadline": 1} {
		r, st := quiet("a"), new(instance)
		st.starving.Store(time.Now().UnixNano())
		r.judge(&request{token: 7, method: "GET", deadline: time.Second, healthy: "a", st: st}, &response{status: 503, header: http.Header{"X-Adbuffer-Source": {source}}}, 0, 0)
		testsupport.Equal(t, r.healthy.sent.Load(), want, "%[2]s: %[1]d requests count", source)
	}
}

func TestMoreExcusesThanOneInAHundredBreakThePromise(t *testing.T) {
	r := quiet("a")
	for range 10 {
		r.excuse(late, nil, time.Second)
	}
	r.checkExcuses(1000)
	wantBroken(t, r, none)
	r.excuse(late, nil, time.Second)
	r.checkExcuses(1000)
	wantBroken(t, r, late)
}

func TestAStallIsNoLongerThanTheTimeInWhichItWasMeasured(t *testing.T) {
	const ms = time.Millisecond
	testsupport.Equal(t, taken(50*ms, 0, 40*ms, 45*ms), 50*ms, "%v of 50 ms")
	testsupport.Equal(t, taken(50*ms, 0, 10*ms, 5*ms), 15*ms, "%v, want 15 ms")
	// A request waits for one thread at a time, so waits of several threads do not add up.
	const a, b, ended, began = 1, 2, 3, 4
	before := load.Waits{a: 0, b: 0, ended: 0}
	testsupport.Equal(t, (load.Waits{a: 20 * ms, b: 30 * ms, began: 500 * ms}).Longest(before), 30*ms, "longest %v, want 30 ms")
}

// If the machine took more than half a second lately, the end of a new connection is excused. A stall
// of one instance does not excuse another instance.
func TestANewConnectionIsExcusedByAStallOfItsOwnInstance(t *testing.T) {
	r := quiet("a")
	stalled, calm := &instance{name: "stalled"}, &instance{name: "calm"}
	stalled.stalls.lately.Store(int64(600 * time.Millisecond))
	r.instances = []*instance{stalled, calm}
	r.newConnectionEnded(stalled, nil, "EOF")
	wantBroken(t, r, none)
	n, _ := r.excused.of(string(unread))
	testsupport.Equal(t, n, 1, "%d excuses")
	r.newConnectionEnded(calm, nil, "EOF")
	wantBroken(t, r, unread)
}

func TestARequestThatAnSSPReceivedGetsAResponse(t *testing.T) {
	r := quiet("a")
	for range 3 {
		r.log.token()
	}
	r.log.receive(0, "a", "calm", &sspsim.Request{Method: "GET", Target: "/bid?cb=2&m=GET&len=0"})
	r.noResponse(&request{token: 1}, 1, fmt.Errorf("closed"))
	r.checkUnanswered()
	wantBroken(t, r, none)
	r.noResponse(&request{token: 2}, 1, fmt.Errorf("closed"))
	r.checkUnanswered()
	wantBroken(t, r, lost)
	r = quiet("a")
	r.noResponse(&request{token: 3, st: new(instance)}, 0, fmt.Errorf("closed")) // the first on its connection
	wantBroken(t, r, unread)
}

func TestARefusedRequestIsSentAFewTimes(t *testing.T) {
	r := quiet("a", "b")
	for range maxSendings {
		r.log.refuse(0, "a", "refuses all streams", "/bid?cb=7&m=GET")
		r.log.refuse(0, "a", "refuses all streams", "/bid?cb=77&m=GET")
		r.log.refuse(1, "b", "refuses all streams", "/bid?cb=7&m=GET")
	}
	wantBroken(t, r, none)
	r.log.refuse(0, "a", "refuses all streams", "/bid?cb=7&m=GET")
	wantBroken(t, r, sentFew)
}

// The spare has ten seconds to take over. Requests that working primaries carry, and one probe of each failing
// primary, are not held against the spare.
func TestTheSpareIsJudgedWhilePrimariesFail(t *testing.T) {
	r := quiet("a")
	bySpare := &response{status: 200, header: http.Header{"X-Adbuffer-Source": {"ssp/group"}}}
	failed := &response{status: 500, header: http.Header{"X-Adbuffer-Source": {"ssp/group"}}}
	r.group.since.Store(time.Now().UnixNano())
	testsupport.Equal(t, r.group.settled(), 0, "the spare has had no time: %v")
	r.group.since.Store(time.Now().Add(-takeover).UnixNano())
	a := &request{outage: r.group.settled()}
	for range 100 {
		r.group.judge(a, bySpare)
	}
	r.group.judge(&request{outage: 1}, failed)
	r.group.judge(a, failed)
	r.judgeGroup()
	wantBroken(t, r, none)
	for range probesOfPrimaries {
		r.group.judge(a, failed)
	}
	r.group.probes.Add(probesOfPrimaries)
	r.judgeGroup()
	wantBroken(t, r, none)
	r.group.judge(a, failed)
	r.judgeGroup()
	wantBroken(t, r, carried)
}

func TestWhatAProcessHoldsUnderAnAttackIsJudged(t *testing.T) {
	const conns = 40
	sums := map[string]float64{"adbuffer_client_connections": conns}
	r, st := quiet("a"), &instance{name: "i"}
	many := sample{rss: maxMemory, goroutines: 1001 + maxGoroutinesPerConn*conns}
	r.observe(st, many, sums)
	r.observe(st, sample{rss: maxMemory, goroutines: 1000 + maxGoroutinesPerConn*conns}, sums)
	r.observe(st, many, sums)
	wantBroken(t, r, none)
	r.observe(st, many, sums) // twice in a row
	wantBroken(t, r, modest)
	r = quiet("a")
	r.observe(st, sample{rss: maxMemory + 1}, sums)
	wantBroken(t, r, modest)
}

func TestWhatAProcessHoldsAtRestIsJudged(t *testing.T) {
	const idle = `{"totals": {"in_flight": 0, "uploads": 0}}`
	for _, row := range []struct {
		sums  map[string]float64
		pools string
		want  string
	}{
		{map[string]float64{"go_goroutines": 9}, idle, ""},
		{map[string]float64{"adbuffer_buffered_bytes": 7, "adbuffer_pool_places_in_use": 2}, idle, "adbuffer_buffered_bytes 7, adbuffer_pool_places_in_use 2"},
		{nil, `{"totals": {"uploads": 3}}`, "uploads 3"},
	} {
		held, err := heldAtRest(row.sums, row.pools)
		testsupport.NoError(t, err)
		testsupport.Equal(t, strings.Join(held, ", "), row.want, "it holds %q")
	}
	for _, pools := range []string{`{"totals": {}}`, `{}`, ""} {
		_, err := heldAtRest(nil, pools)
		testsupport.True(t, err != nil, "%q says that nothing is held", pools)
	}
}

func TestBlameOfAHealthySSPIsSeenOnce(t *testing.T) {
	for labels, want := range map[string]bool{`ssp="calm1",outcome="connect_failed"`: true, `outcome="ssp_backoff",ssp="calm2"`: true,
		`ssp="calm1",outcome="local_error"`: false, `ssp="plain",outcome="connect_failed"`: false} {
		if blames("adbuffer_ssp_requests_total", labels) != want {
			t.Errorf("%s: blames %v", labels, !want)
		}
	}
	r, st := quiet("a"), &instance{name: "i"}
	r.observe(st, sample{}, map[string]float64{blame + `ssp="calm1"}`: 0})
	wantBroken(t, r, none)
	r.observe(st, sample{}, map[string]float64{blame + `ssp="calm1"}`: 2})
	r.observe(st, sample{}, map[string]float64{blame + `ssp="calm1"}`: 2})
	wantBroken(t, r, blamed)
	if n, _ := r.broken.of(string(blamed)); n != 1 {
		t.Errorf("broken %d times", n)
	}
}

func TestSharesOfEndpointsAreJudged(t *testing.T) {
	for _, row := range []struct {
		first, second uint64
		want          promise
	}{{199, 0, none}, {200, 0, turns}, {161, 39, turns}, {160, 40, none}, {140, 60, none}, {139, 61, turns}, {0, 200, turns}} {
		r := quiet("a")
		r.judgeTurns(row.first, row.second)
		wantBroken(t, r, row.want)
	}
}

// A long run without evidence for a promise has not shown it.
func TestALongRunWithoutEvidenceBreaksPromises(t *testing.T) {
	for _, row := range []struct {
		judge func(*run)
		want  promise
	}{
		{func(r *run) { r.judgeTurns(150, 49) }, turns},
		{func(r *run) { r.judgeGroup() }, carried},
		{func(r *run) { r.tally.add("204 proxy/shaped", ""); r.judgeVariety(14) }, mixed},
		{func(r *run) { r.tally.add("204 proxy/shaped", ""); r.judgeVariety(15) }, none},
		{func(r *run) { r.judgeVariety(15) }, mixed},
	} {
		r := quiet("a")
		r.options.length = 2 * time.Minute
		row.judge(r)
		wantBroken(t, r, row.want)
		for _, o := range []options{{length: time.Minute}, {length: 2 * time.Minute, only: "provokes 500"}} {
			r = quiet("a")
			r.options = o
			row.judge(r)
			wantBroken(t, r, none)
		}
	}
}

func TestHandshakesOfHonestClientsAreJudged(t *testing.T) {
	r, st := quiet("a"), &instance{name: "i"}
	now := time.Now()
	st.stalls.tick.Store(now.Add(time.Hour).UnixNano()) // it measures nothing
	r.judgeHandshake(st, "keep-alive", now.Add(-1900*time.Millisecond), 0)
	r.judgeHandshake(st, hostileKind, now.Add(-time.Minute), 0)
	wantBroken(t, r, none)
	r.judgeHandshake(st, "keep-alive", now.Add(-2100*time.Millisecond), 0)
	wantBroken(t, r, greeted)
}

// The server accepts the key share at once, and the authorities are all candidates for the issuer of a leaf.
func TestHandshakesOfAttacksAreExpensive(t *testing.T) {
	testsupport.Long(t)
	hello := expensiveHello()
	share := binary.BigEndian.AppendUint16(nil, uint16(tls.CurveP521))
	share = append(share, 0, 133, 4) // the length of the key, and an uncompressed point
	testsupport.True(t, len(hello) == 5+int(binary.BigEndian.Uint16(hello[3:])) && bytes.Contains(hello, share), "%x", hello)
	extra, err := sameNamed()
	testsupport.NoError(t, err)
	testsupport.Equal(t, len(extra), 98, "%d certificates")
	for _, der := range extra {
		c, err := x509.ParseCertificate(der)
		testsupport.NoError(t, err)
		testsupport.True(t, c.IsCA && c.Subject.String() == "CN=sspsim CA", "%v", c.Subject)
	}
}

// A request says which response the SSP must send.
func TestAClientProvokesAResponse(t *testing.T) {
	r := quiet("a")
	a := &request{token: r.log.token(), method: "GET", status: 503}
	q := &sspsim.Request{Method: "GET", Target: "/bid?" + a.query()}
	r.log.receive(0, "a", "calm", q)
	wantBroken(t, r, none)
	testsupport.True(t, q.Respond.Code == 503 && q.Respond.RetryAfter != 0, "%+v", q.Respond)
}

func TestOptionsSelectAttacksAndBehaviours(t *testing.T) {
	for only, want := range map[string]bool{"": true, "broken head": true, "refuses all": true, "all primaries": true, noDescriptors: true, noLogReader: true, "no response for IPv6": true, "P-521": true, "nothing of all this": false} {
		r := quiet("a")
		r.options.only = only
		if err := r.chooseAttacks(); (err == nil) != want {
			t.Errorf("%q: %v", only, err)
		}
		if n := len(r.attacks); only == "broken head" && n != 2 || only == "refuses all" && n != 0 {
			t.Errorf("%q: %d attacks", only, n)
		}
	}
}

func TestGrowthIsSeen(t *testing.T) {
	var steady, growing []sample
	for i := range 9 {
		steady = append(steady, sample{goroutines: 40, heap: 3 << 20})
		growing = append(growing, sample{goroutines: 40 + float64(8*i), heap: 3 << 20})
	}
	r := quiet("a")
	table := new(results.Table)
	r.compare(&instance{name: "steady", samples: steady}, table)
	wantBroken(t, r, none)
	r.compare(&instance{name: "growing", samples: growing}, table)
	wantBroken(t, r, flat)
	for _, row := range []struct {
		heap     float64
		attacked bool
		want     promise
	}{
		{5<<20 + 300_000, false, none}, // by 10 % and 2 MiB
		{5<<20 + 400_000, false, flat},
		{5<<20 + 6_400_000, true, none}, // and 6.1 MB, for 12 800 goroutines that have ended
		{5<<20 + 6_500_000, true, flat},
	} {
		r := quiet("a")
		if row.attacked {
			r.attacksSeen.add("reads nothing and provokes frames", "")
		}
		samples := slices.Clone(steady)
		for i := 6; i < 9; i++ {
			samples[i][heap] = row.heap
		}
		r.compare(&instance{name: "risen", samples: samples}, table)
		wantBroken(t, r, row.want)
	}
}

// Each SSP has only behaviours that its protocol can show, and each behaviour has an SSP. A healthy SSP
// has one behaviour.
func TestBehavioursFitTheirSSPs(t *testing.T) {
	shown := map[string]bool{}
	for _, m := range allBehaviours() {
		shown[m.name] = false
	}
	defer func() {
		for name, by := range shown {
			testsupport.True(t, by, "no SSP shows %q", name)
		}
	}()
	for _, k := range sspKinds {
		behaviours := behavioursFor(k)
		testsupport.True(t, k.healthy == (len(behaviours) == 1), "%s has %d behaviours", k.name, len(behaviours))
		for _, m := range behaviours {
			shown[m.name] = true
			if err := m.behaviour.Validate(); err != nil {
				t.Errorf("%s: %s: %v", k.name, m.name, err)
			}
			if k.protocol == "http1-pipelined" && m.behaviour.Faults.Leftover != (sspsim.Chance{}) {
				t.Errorf("%s: %s: HTTP/1.1 has no means against it", k.name, m.name)
			}
		}
	}
}

// An attack on many connections waits until each healthy SSP has responded to 40 requests, which is twice min_requests of
// the breaker.
func TestHonestResponsesComeBeforeAttacks(t *testing.T) {
	r, st := quiet("calm1", "calm2"), &instance{name: "i"}
	respond := func(ssp string, n int) {
		for range n {
			r.judge(&request{token: 7, method: "GET", deadline: time.Second, st: st}, &response{status: 200, header: http.Header{"X-Adbuffer-Source": {"ssp/" + ssp}, "X-Echo-Cb": {"7"}}}, 0, 0)
		}
	}
	before := time.Now().UnixNano()
	respond("calm1", 39)
	respond("calm2", 40)
	testsupport.Equal(t, st.responses.areEnough(before), false, "39 responses are enough: %v")
	respond("calm1", 1)
	testsupport.Equal(t, st.responses.areEnough(before), true, "40 responses are enough: %v")
	testsupport.Equal(t, st.responses.areEnough(time.Now().UnixNano()+1), false, "responses before the pause are enough: %v")
}
