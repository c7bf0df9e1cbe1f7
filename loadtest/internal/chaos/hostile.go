package chaos

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"adbuffer/internal/test/sspsim"
	"adbuffer/loadtest/internal/rig"
)

// attack is what a hostile client does: it violates the protocol, goes away, or takes too much.
type attack struct {
	name string
	// conns is how many connections run do at once.
	// The client opens a connection each millisecond. 0 means a single connection.
	conns int
	http2 bool
	bare  bool // no TLS handshake before do
	// guarded says that the attack needs an instance that requests client certificates.
	guarded bool
	// control sets options of the socket; nil sets none.
	control func(network, addr string, c syscall.RawConn) error
	do      func(h *hostile)
}

// hostileKind names the kind of client in errors.
const hostileKind = "a hostile client"

// hostile is a hostile client on one connection.
type hostile struct {
	*http1Conn
	run *run
	rnd *rand.Rand
	n   int       // the index of the connection
	end time.Time // of an attack on many connections
}

func (h *hostile) draw(n int) []*request { return h.run.drawAll(n, h.st, hostileKind, h.rnd) }

// drawPart returns a POST of which the client will send only a part.
func (h *hostile) drawPart(length int) *request {
	a := h.draw(1)[0]
	a.method, a.body, a.chunked, a.broken = "POST", requestBody(a.token, length), false, "a-part-of-a-body"
	return a
}

// drawBroken returns a request with a broken message head, and its text.
func (h *hostile) drawBroken() (*request, string) {
	a := h.draw(1)[0]
	a.broken = "a-broken-head"
	return a, fmt.Sprintf(brokenHeads[h.rnd.IntN(len(brokenHeads))], a.query())
}

func (h *hostile) send(asks ...*request) error {
	_, err := h.Write(textOf(asks, false))
	return err
}

// wait waits for less than maxMillis milliseconds.
func (h *hostile) wait(maxMillis int) {
	time.Sleep(time.Duration(h.rnd.IntN(maxMillis)) * time.Millisecond)
}

func (h *hostile) noise(length int) []byte {
	b := make([]byte, length)
	for i := range b {
		b[i] = byte(h.rnd.Uint32())
	}
	return b
}

// http1Attacks are what a hostile client may do over HTTP/1.
var http1Attacks = []attack{
	{name: "goes away while it waits", do: func(h *hostile) {
		_ = h.send(h.draw(1)...)
		h.wait(60)
	}},
	{name: "goes away in a pipeline", do: func(h *hostile) {
		_ = h.send(h.draw(6)...)
		_, _ = h.Read(make([]byte, 1+h.rnd.IntN(2000)))
	}},
	{name: "goes away in its upload", do: func(h *hostile) {
		a := h.drawPart(5000)
		a.chunked = h.rnd.IntN(2) == 0
		text := a.http1(false)
		_, _ = h.Write(text[:len(text)-1-h.rnd.IntN(4000)])
		h.wait(20)
	}},
	{name: "claims a body and is silent", do: func(h *hostile) {
		a := h.drawPart(200_000)
		text := a.http1(false)
		_, _ = h.Write(text[:len(text)-len(a.body)+h.rnd.IntN(100)])
		h.wantRefused(a)
	}},
	{name: "does not read its responses", do: func(h *hostile) {
		_ = h.SetWriteDeadline(time.Now().Add(2 * time.Second))
		for n := 0; n < 40 && h.send(h.draw(1)...) == nil; n++ {
		}
		h.wait(1500)
	}},
	{name: "sends a broken head", do: func(h *hostile) {
		a, text := h.drawBroken()
		_, _ = io.WriteString(h, text)
		h.wantRefused(a)
	}},
	{name: "sends a broken head after correct requests", do: func(h *hostile) {
		asks := h.draw(1 + h.rnd.IntN(3))
		bad, text := h.drawBroken()
		text += strings.Repeat("GET / HTTP/1.1\r\n\r\n", h.rnd.IntN(50))
		_, _ = h.Write(append(textOf(asks, false), text...))
		h.wait(300) // a refused request must not destroy earlier responses
		if h.run.responses(h.http1Conn, clientKind{}, asks, time.Now) {
			h.wantRefused(bad)
		}
	}},
	{name: "connects and is silent", do: func(h *hostile) { h.wait(1500) }},
	{name: "sends what is not HTTP", do: func(h *hostile) {
		_, _ = h.Write(h.noise(1 + h.rnd.IntN(3000)))
		_ = h.SetReadDeadline(time.Now().Add(2 * readTimeout))
		_, _ = io.Copy(io.Discard, h)
	}},
	{name: "finishes no handshake and no head", conns: 1300, bare: true, do: func(h *hostile) {
		if !h.st.encrypted {
			_, _ = io.WriteString(h, "G")
		} else if h.n%2 == 0 {
			_, _ = io.WriteString(h, "\x16")
		}
		h.hold()
	}},
	{name: "provokes 500", conns: 8, do: func(h *hostile) {
		h.repeat(5*time.Millisecond, func(a *request) { a.path, a.status = "/single/calm1", 500 })
	}},
	{name: "provokes 503 with Retry-After", conns: 2, do: func(h *hostile) {
		h.repeat(100*time.Millisecond, func(a *request) { a.path, a.status = "/single/calm1", 503 })
	}},
	{name: "provokes resets", conns: 2, do: func(h *hostile) {
		h.repeat(50*time.Millisecond, func(a *request) { a.path, a.status = "/single/calm1", sspsim.NoResponse })
	}},
	{name: "provokes PROTOCOL_ERROR", conns: 2, do: func(h *hostile) {
		h.repeat(50*time.Millisecond, func(a *request) { a.path, a.status = "/single/calm2", sspsim.NoResponse })
	}},
	{name: "provokes GOAWAY by a field of 9 KB", conns: 2, do: func(h *hostile) {
		h.repeat(50*time.Millisecond, func(a *request) {
			a.path = "/single/calm2"
			a.fields.Set("X-Long", strings.Repeat("v", 9<<10))
		})
	}},
	{name: "states impossible deadlines", conns: 8, do: func(h *hostile) {
		if h.n == 0 {
			h.witnessCopies()
		}
		h.repeat(5*time.Millisecond, func(a *request) { a.path, a.inHeader, a.deadline = "/mirrored", true, 15*time.Millisecond })
	}},
	{name: "uploads to an SSP that hangs", conns: 300, do: func(h *hostile) {
		a := h.drawPart(262_000)
		a.broken, a.path, a.inHeader, a.deadline = "", "/hung", true, massLength
		_ = h.send(a)
		h.hold()
	}},
}

func (h *hostile) hold() {
	_ = h.SetReadDeadline(h.end)
	_, _ = io.Copy(io.Discard, h)
}

// untilEnd calls do repeatedly until the attack ends, or all clients pause: the attack must not go on alone. Between the
// starts of two calls there is at least pause.
func (h *hostile) untilEnd(pause time.Duration, do func()) {
	for time.Now().Before(h.end) && !h.run.pausing.Load() {
		next := time.Now().Add(pause)
		do()
		time.Sleep(time.Until(next))
	}
}

// repeat sends GETs, each after change has changed it, one after the other until the attack ends.
func (h *hostile) repeat(pause time.Duration, change func(a *request)) {
	h.untilEnd(pause, func() {
		a := h.drawGET()
		change(a)
		h.ask(a.http1(false))
	})
}

// ask sends a request and reads its response, until the attack ends.
func (h *hostile) ask(text []byte) {
	_ = h.SetDeadline(h.end)
	if _, err := h.Write(text); err == nil {
		_, _ = readResponse(h.in, "GET")
	}
}

// witnessCopies sends requests of another client during the attack. The SSP on trial must
// receive a copy of at least four fifths of them.
func (h *hostile) witnessCopies() {
	const minSent = 10 // requests for a verdict
	ctx := context.Background()
	conn, err := h.run.dial(ctx, h.st, honest(h.rnd), "the witness of copies", "http/1.1")
	if err != nil {
		return
	}
	defer conn.Close()
	c := &http1Conn{Conn: conn, st: h.st, in: bufio.NewReader(conn)}
	var sent []*request
	for time.Now().Before(h.end.Add(-time.Second)) {
		a := h.drawGET()
		a.path, a.healthy, a.inHeader, a.deadline = "/mirrored", "calm2", true, h.run.options.patience
		if !h.run.exchange(c, clientKind{}, h.rnd, []*request{a}) {
			break
		}
		sent = append(sent, a)
	}
	time.Sleep(time.Second)
	missing := 0
	for _, a := range sent {
		if !h.run.log.received(a.token, h.run.named("trial")) {
			missing++
		}
	}
	if len(sent) >= minSent && missing > len(sent)/5 {
		h.run.broken.add(copied, "%s: %d of %d requests were not copied", h.st.name, missing, len(sent))
	}
}

// brokenHeads are requests that adbuffer must refuse. %s stands for the query.
var brokenHeads = []string{
	"GET /single?%s HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde",
	post + "Host: a\r\nX-A: b\r\n c\r\n\r\n",
	post + "Host: a\nX-A: b\r\n\r\n",
	post + "Host: a\r\nX-A : b\r\n\r\n",
	post + "Host: a\r\nX-A: b\x00\r\n\r\n",
	post + "Host: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
	post + "Host: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
	post + "Host: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
	post + "Host: a\r\nContent-Length: +1\r\n\r\n",
	post + "Host: a\r\nX-A: " + strings.Repeat("v", 20_000) + "\r\n\r\n",
	post + "Host: a\r\nContent-Length: 300000\r\n\r\n",
}

const post = "POST /single?%s HTTP/1.1\r\n"

// wantRefused reads the response to a request that adbuffer must refuse. adbuffer may also refuse it
// by closing the connection without a response.
func (h *hostile) wantRefused(a *request) {
	const wait = readTimeout + 10*time.Second
	_ = h.SetReadDeadline(time.Now().Add(wait))
	p, err := readResponse(h.in, "POST")
	switch {
	case err == nil:
		h.run.judge(a, p, 0, 0)
		return
	case timedOut(err):
		h.run.broken.add(refused, "a request with %s got no response within %v", a.broken, wait)
	}
	h.run.noResponse(a, 1, err)
}

// chooseAttacks keeps the attacks that the options select.
func (r *run) chooseAttacks() error {
	r.attacks = slices.DeleteFunc(slices.Concat(http1Attacks, http2Attacks, cpuAttacks), func(a attack) bool { return !r.selects(a.name) })
	known := len(r.attacks)
	for _, m := range slices.Concat(allBehaviours(), groupBehaviours, []namedBehaviour{{name: noDescriptors}, {name: noLogReader}}, resolverFaults()) {
		if r.selects(m.name) {
			known++
		}
	}
	if known == 0 {
		return fmt.Errorf("--only %q: no attack and no behaviour of an SSP has this in its name", r.options.only)
	}
	return nil
}

// selects reports whether the options select an attack or a behaviour by its name.
func (r *run) selects(name string) bool { return strings.Contains(name, r.options.only) }

// attack makes one attack from one address.
func (r *run) attack(ctx context.Context, st *instance, rnd *rand.Rand) error {
	a := r.attacks[rnd.IntN(len(r.attacks))]
	d := dialer(net.IPv4(127, 0, 2, byte(rnd.IntN(8))))
	d.Control = a.control
	if a.conns == 0 {
		r.attacksSeen.add(a.name, "")
		return r.attackOnce(ctx, a, st, d, &hostile{run: r, rnd: rnd})
	}
	switch {
	case st.encrypted && a.conns > 100 && !a.bare:
		return nil // the machine would do nothing but handshakes
	case a.guarded && !st.guarded:
		return nil
	case !st.responses.areEnough(max(r.resumed.Load(), st.replaced.Load(), time.Now().Add(-honestWithin).UnixNano())):
		return nil
	case !r.mass.TryLock():
		return nil // the machine can carry only one such attack at a time
	}
	defer r.mass.Unlock()
	r.attacksSeen.add(a.name, "")
	began := time.Now()
	end := began.Add(time.Duration(a.conns)*time.Millisecond + massLength)
	var conns sync.WaitGroup
	for i := range a.conns {
		h := &hostile{run: r, rnd: rand.New(rand.NewPCG(rnd.Uint64(), 0)), n: i, end: end}
		conns.Go(func() { _ = r.attackOnce(ctx, a, st, d, h) })
		rig.Sleep(ctx, time.Until(began.Add(time.Duration(i)*time.Millisecond)))
	}
	conns.Wait()
	return nil
}

// honestLately are the responses of a healthy SSP to honest clients that an attack on many connections needs before it
// begins: twice min_requests of the breaker, within less than its window. Without the honest clients' requests, adbuffer
// would judge SSPs by the attacker's alone.
const (
	honestLately = 40
	honestWithin = 5 * time.Second
)

// recentResponses holds when the last responses of SSPs came, in nanoseconds since 1970.
type recentResponses struct {
	mu    sync.Mutex         // guards bySSP
	bySSP map[string][]int64 // at most honestLately, the oldest first
}

func (t *recentResponses) add(ssp string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bySSP == nil {
		t.bySSP = map[string][]int64{}
	}
	times := append(t.bySSP[ssp], now.UnixNano())
	t.bySSP[ssp] = times[max(0, len(times)-honestLately):]
}

// areEnough reports whether each healthy SSP has sent enough responses since then.
func (t *recentResponses) areEnough(since int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range sspKinds {
		if times := t.bySSP[k.name]; k.healthy && (len(times) < honestLately || times[0] < since) {
			return false
		}
	}
	return true
}

// massLength is how long an attack on many connections lasts once the connections are open.
const massLength = 2500 * time.Millisecond

// attackOnce attacks on a connection of its own, and closes the connection by FIN or by RST.
func (r *run) attackOnce(ctx context.Context, a attack, st *instance, d net.Dialer, h *hostile) error {
	protocol := map[bool]string{false: "http/1.1", true: "h2"}[a.http2]
	if a.bare {
		protocol = ""
	}
	conn, err := r.dial(ctx, st, d, hostileKind, protocol)
	if err != nil {
		return err
	}
	defer conn.Close()
	h.http1Conn = &http1Conn{Conn: conn, st: st, in: bufio.NewReader(conn)}
	a.do(h)
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	if h.n > 0 || h.rnd.IntN(2) == 0 {
		_ = conn.(*net.TCPConn).SetLinger(0)
	}
	return nil
}
