package chaos

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// request is one request and what must become of it.
type request struct {
	token    uint64
	st       *instance // that it is sent to; nil for hostile clients
	client   string    // the client that sends it
	method   string
	path     string // the route's, with the client's choice
	body     []byte
	deadline time.Duration
	inHeader bool   // the deadline is in the header, not the default
	fansOut  bool   // several SSPs may be asked
	healthy  string // the healthy SSP that must respond to it; "" for none
	fields   []string
	chunked  bool
	broken   string // why adbuffer must refuse it; "" for a correct request
}

// mode is a route of the configuration.
type mode struct {
	path    string
	share   int
	heads   bool // HEAD is allowed
	fansOut bool // to several SSPs
}

var modes = []mode{
	{path: "/single", share: 8, heads: true},
	{path: "/split", share: 3, heads: true},
	{path: "/waterfall", share: 3, heads: true, fansOut: true},
	{path: "/first", share: 2, fansOut: true},
	{path: "/all", share: 2, fansOut: true},
}

// The deadlines of requests: the default of the configuration, or in the header.
const (
	defaultDeadline = 400 * time.Millisecond
	leastDeadline   = 60 * time.Millisecond
	mostDeadline    = 1500 * time.Millisecond
)

// defaultDeadline is that of the configuration. Breakers count a timeout only if the
// request had this long.
func (r *run) defaultDeadline() time.Duration {
	if r.options.Patience > DefaultPatience {
		return r.options.Patience
	}
	return defaultDeadline
}

// draw returns a correct request.
func (r *run) draw(client string, rnd *rand.Rand) *request {
	a := &request{client: client, token: r.log.token(), method: "GET", deadline: defaultDeadline}
	m := drawMode(rnd)
	a.path, a.fansOut = m.path, m.fansOut
	if m.path == "/single" {
		s := r.ssps[rnd.IntN(len(r.ssps))]
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
		a.deadline = leastDeadline + time.Duration(rnd.Int64N(int64(mostDeadline-leastDeadline)))
		a.deadline = a.deadline.Truncate(time.Millisecond)
	}
	if a.healthy != "" {
		// The healthy SSPs are judged by success, so a request must have time.
		a.inHeader, a.deadline = true, r.options.Patience
	}
	a.inHeader = a.inHeader || r.defaultDeadline() != defaultDeadline
	for range rnd.IntN(4) {
		a.fields = append(a.fields, fmt.Sprintf("X-Extra-%d: %s", rnd.IntN(100), strings.Repeat("v", rnd.IntN(200))))
	}
	return a
}

// bodyLength is mostly that of an OpenRTB request, now and then near the limit.
func bodyLength(rnd *rand.Rand) int {
	switch n := rnd.IntN(100); {
	case n < 85:
		return 200 + rnd.IntN(3000)
	case n < 98:
		return 4000 + rnd.IntN(60_000)
	}
	return 262_144 - rnd.IntN(4)
}

// query is what SSPs check the request against.
func (a *request) query() string {
	q := fmt.Sprintf("cb=%d&m=%s&len=%d", a.token, a.method, len(a.body))
	if a.broken != "" {
		q += "&refuse=" + a.broken
	}
	return q
}

func (a *request) String() string {
	return fmt.Sprintf("%s: %s %s?%s with %v", a.client, a.method, a.path, a.query(), a.deadline)
}

// drawMode draws a mode by the shares.
func drawMode(rnd *rand.Rand) mode {
	sum := 0
	for _, m := range modes {
		sum += m.share
	}
	at, i := rnd.IntN(sum), 0
	for ; at >= modes[i].share; i++ {
		at -= modes[i].share
	}
	return modes[i]
}
