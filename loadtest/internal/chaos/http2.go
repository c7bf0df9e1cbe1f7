package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// http2Clients talk HTTP/2 to each encrypted instance, with so many streams each.
const (
	http2Clients = 3
	http2Streams = 6
)

// patience is for what the machine itself may take of a response's time.
const patience = 20 * time.Second

// http2Client is a client of HTTP/2, until the context ends: one connection after the
// other, several streams at once.
func (r *run) http2Client(ctx context.Context, st *instance, rnd *rand.Rand) {
	for ctx.Err() == nil {
		r.gate.RLock()
		if err := r.useHTTP2(ctx, st, rnd); err != nil && ctx.Err() == nil {
			r.newConnectionEnded(st, nil, "HTTP/2: %v", err)
			r.sleep(ctx, time.Second)
		}
		r.gate.RUnlock()
		r.think(ctx, rnd)
	}
}

// useHTTP2 opens a connection and sends requests on it until one side closes
// it, or clients pause.
func (r *run) useHTTP2(ctx context.Context, st *instance, rnd *rand.Rand) error {
	conn, err := r.dial(ctx, st, "h2")
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer conn.Close()
	// Its own connection, since a Transport would send requests again.
	cc, err := (&http2.Transport{}).NewClientConn(conn)
	if err != nil {
		return err
	}
	defer cc.Close()
	requests := 1 + rnd.IntN(40)
	var streams sync.WaitGroup
	for range http2Streams {
		rnd := rand.New(rand.NewPCG(rnd.Uint64(), 0))
		streams.Go(func() {
			for n := 0; n < requests && !r.paused() && ctx.Err() == nil && cc.CanTakeNewRequest(); n++ {
				r.stream(ctx, st, cc, rnd, n)
				r.think(ctx, rnd)
			}
		})
	}
	streams.Wait()
	return nil
}

// stream sends one request and judges its response. Now and then the client
// gives it up.
func (r *run) stream(ctx context.Context, st *instance, cc *http2.ClientConn, rnd *rand.Rand, n int) {
	a := r.draw(st.name+", HTTP/2", rnd)
	a.st = st
	wait := a.deadline + r.options.Allowance + patience
	leaves := rnd.IntN(20) == 0
	if leaves {
		wait = time.Duration(rnd.Int64N(int64(50 * time.Millisecond)))
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, a.method, "https://adbuffer.test"+a.path+"?"+a.query(), nil)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	for _, f := range a.allFields() {
		name, value, _ := strings.Cut(f, ": ")
		req.Header.Set(name, value)
	}
	if a.method == "POST" {
		body := &upload{Reader: bytes.NewReader(a.body)}
		if rnd.IntN(4) == 0 {
			body.pause = time.Duration(rnd.IntN(20)) * time.Millisecond
		}
		req.Body = body
		if req.ContentLength = int64(len(a.body)); a.chunked {
			req.ContentLength = -1
		}
	}
	stalled, from := r.stalled(st), time.Now()
	res, err := cc.RoundTrip(req)
	var body []byte
	took := time.Since(from)
	if err == nil {
		body, err = io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			err = &cutError{err}
		}
	}
	switch {
	case leaves && err != nil, ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
	case err != nil:
		r.streamEnded(a, n, err)
	default:
		// The whole upload comes before the clock; what it took is not adbuffer's.
		r.judge(a, &response{status: res.StatusCode, header: res.Header, body: body, took: took}, r.stalled(st)-stalled, uploadTime(req))
	}
}

// uploadTime is how long the body of a request was on its way at most.
func uploadTime(req *http.Request) time.Duration {
	if u, ok := req.Body.(*upload); ok {
		return u.took()
	}
	return 0
}

// streamEnded judges a stream that ended with err, the nth of its kind.
func (r *run) streamEnded(a *request, n int, err error) {
	var cut *cutError
	switch {
	case errors.As(err, &cut):
		r.broken.add(mixed, "%v: the response was cut: %v", a, err)
	case errors.Is(err, context.DeadlineExceeded):
		r.broken.add(late, "%v: no response: %v", a, err)
	case goneAway(err):
		// HTTP/2 says which requests were not processed; clients send them again.
		r.noResponse(a, 1, err)
	default:
		r.noResponse(a, n, err)
	}
}

// goneAway says that a connection took no more requests, by the errors of
// x/net's client, which exports none of them.
func goneAway(err error) bool {
	var goAway http2.GoAwayError
	return errors.As(err, &goAway) || strings.HasPrefix(err.Error(), "http2: Transport received Server's graceful shutdown GOAWAY") ||
		strings.HasPrefix(err.Error(), "http2: client conn not usable")
}

// upload is a body that is read in pieces with pauses.
type upload struct {
	*bytes.Reader
	pause time.Duration

	mu          sync.Mutex
	first, last time.Time
}

func (u *upload) Read(b []byte) (int, error) {
	u.mu.Lock()
	if u.first.IsZero() {
		u.first = time.Now()
	}
	u.last = time.Now()
	u.mu.Unlock()
	time.Sleep(u.pause)
	return u.Reader.Read(b[:min(len(b), 9000)])
}

func (u *upload) Close() error { return nil }

func (u *upload) took() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.last.Sub(u.first) + u.pause
}
