package chaos

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"
)

// request is one request and its expected outcome.
type request struct {
	token    uint64
	st       *instance // the instance that receives it
	client   string    // the client that sends it
	method   string
	path     string // the path of its route, with the SSP that the client chooses
	body     []byte
	deadline time.Duration
	inHeader bool   // a field of the header sets the deadline
	fansOut  bool   // several SSPs may receive it
	healthy  string // the healthy SSP that must respond to it; "" for none
	fields   http.Header
	chunked  bool
	status   int    // the status with which the SSP must respond; 0 leaves the choice to the SSP
	outage   int64  // when the primaries of the group began to fail; 0 if the spare need not carry the request
	broken   string // why adbuffer must refuse it; "" for a correct request
}

// mode is a route of the configuration.
type mode struct {
	path    string
	share   int  // of 20 requests
	heads   bool // HEAD is allowed
	fansOut bool // several SSPs may receive a request
}

// modes has each mode as often as its share.
var modes = func() (all []mode) {
	for _, m := range []mode{
		{path: "/single", share: 7, heads: true},
		{path: "/split", share: 3, heads: true},
		{path: "/waterfall", share: 3, heads: true, fansOut: true},
		{path: "/first", share: 2, fansOut: true},
		{path: "/all", share: 2, fansOut: true},
		{path: "/group", share: 2, heads: true},
		{path: "/turns", share: 1, heads: true},
	} {
		all = append(all, slices.Repeat([]mode{m}, m.share)...)
	}
	return all
}()

// The deadline of a request is the default of the configuration, or a field of its header sets it.
const (
	defaultDeadline = 400 * time.Millisecond
	minDeadline     = 60 * time.Millisecond
	maxDeadline     = 1500 * time.Millisecond
)

// defaultDeadline returns the default deadline in the configuration. A breaker counts a timeout only
// if the request had at least this deadline.
func (r *run) defaultDeadline() time.Duration {
	if r.options.patience > defaultPatience {
		return r.options.patience
	}
	return defaultDeadline
}

func (r *run) drawAll(n int, st *instance, kind string, rnd *rand.Rand) []*request {
	asks := make([]*request, n)
	for i := range asks {
		asks[i] = r.draw(st, kind, rnd)
	}
	return asks
}

// draw returns a correct request of a client of this kind.
func (r *run) draw(st *instance, kind string, rnd *rand.Rand) *request {
	a := &request{st: st, client: st.name + ", " + kind, token: r.log.token(), method: "GET", deadline: defaultDeadline, fields: http.Header{}}
	m := modes[rnd.IntN(len(modes))]
	a.path, a.fansOut = m.path, m.fansOut
	if m.path == "/single" {
		s := r.mixed()[rnd.IntN(len(r.mixed()))]
		a.path += "/" + s.name
		if s.healthy {
			a.healthy = s.name
		}
	}
	switch n := rnd.IntN(100); {
	case n < 40:
		a.method = "POST"
	case n < 44 && m.heads:
		a.method = "HEAD"
	}
	if a.method == "POST" {
		a.body = requestBody(a.token, bodyLength(rnd))
		a.chunked = rnd.IntN(6) == 0
	}
	if rnd.IntN(3) == 0 {
		a.inHeader = true
		a.deadline = minDeadline + time.Duration(rnd.Int64N(int64(maxDeadline-minDeadline)))
		a.deadline = a.deadline.Truncate(time.Millisecond)
	}
	if a.healthy != "" {
		// Requests to healthy SSPs must succeed, so they need enough time.
		a.inHeader, a.deadline = true, r.options.patience
	}
	a.inHeader = a.inHeader || r.defaultDeadline() != defaultDeadline
	if a.path == "/group" && a.deadline >= defaultDeadline && !st.handsOver {
		a.outage = r.group.settled()
	}
	for range rnd.IntN(4) {
		a.fields.Add(fmt.Sprintf("X-Extra-%d", rnd.IntN(100)), strings.Repeat("v", rnd.IntN(200)))
	}
	return a
}

// bodyLength returns the length of a usual OpenRTB request, and now and then a length near the limit.
func bodyLength(rnd *rand.Rand) int {
	switch n := rnd.IntN(100); {
	case n < 85:
		return 200 + rnd.IntN(3000)
	case n < 98:
		return 4000 + rnd.IntN(60_000)
	}
	return 262_144 - rnd.IntN(4)
}

// query returns the query, in which an SSP reads what the request must look like.
func (a *request) query() string {
	q := fmt.Sprintf("cb=%d&m=%s&len=%d", a.token, a.method, len(a.body))
	if a.broken != "" {
		q += "&refuse=" + a.broken
	}
	if a.status != 0 {
		q += fmt.Sprintf("&status=%d", a.status)
	}
	return q
}

// message returns the request as net/http sends it, and its body.
func (a *request) message(ctx context.Context) (*http.Request, *upload) {
	q, err := http.NewRequestWithContext(ctx, a.method, "https://adbuffer.test"+a.path+"?"+a.query(), http.NoBody)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	q.Header = a.fields.Clone()
	if a.inHeader {
		q.Header.Set("X-Adbuffer-Timeout-Ms", fmt.Sprint(a.deadline.Milliseconds()))
	}
	body := &upload{Reader: bytes.NewReader(a.body), piece: 1 + int(a.token*2654435761%8192)}
	if a.method == "POST" {
		q.Header.Set("Content-Type", "application/json")
		q.Body, q.ContentLength = body, int64(len(a.body))
		if a.chunked {
			q.ContentLength = -1
		}
	}
	return q, body
}

func (a *request) http1(http10 bool) []byte {
	q, _ := a.message(context.Background())
	if http10 {
		q.ContentLength = int64(len(a.body)) // HTTP/1.0 has no chunks
		q.Header.Set("Connection", "keep-alive")
	}
	var b bytes.Buffer
	if err := q.Write(&b); err != nil {
		panic("BUG: " + err.Error())
	}
	if http10 {
		return bytes.Replace(b.Bytes(), []byte("HTTP/1.1"), []byte("HTTP/1.0"), 1)
	}
	return b.Bytes()
}

func (a *request) String() string {
	return fmt.Sprintf("%s: %s %s?%s with %v", a.client, a.method, a.path, a.query(), a.deadline)
}
