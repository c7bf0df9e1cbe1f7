package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"adbuffer/loadtest/internal/rig"
)

const (
	http2Clients = 3 // of each encrypted instance
	http2Streams = 6 // of each HTTP/2 client at once
)

// patience is added to the time within which a response must come, since the machine may stall.
const patience = 20 * time.Second

// A Transport would send requests again, so each client manages its connection itself. smallWindows has HTTP/2's
// default windows, with which a client returns credit for each frame.
var (
	largeWindows    = new(http2.Transport)
	smallWindows, _ = http2.ConfigureTransports(&http.Transport{HTTP2: &http.HTTP2Config{
		MaxReceiveBufferPerConnection: 1 << 16, MaxReceiveBufferPerStream: 1 << 16}})
)

func (r *run) dialHTTP2(ctx context.Context, st *instance, kind string, t *http2.Transport, rnd *rand.Rand) (*http2.ClientConn, error) {
	conn, err := r.dial(ctx, st, honest(rnd), kind, "h2")
	if err != nil {
		return nil, err
	}
	cc, err := t.NewClientConn(conn)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	return cc, nil
}

func (r *run) useHTTP2(ctx context.Context, st *instance, rnd *rand.Rand) error {
	cc, err := r.dialHTTP2(ctx, st, "HTTP/2", largeWindows, rnd)
	if err != nil {
		return err
	}
	defer cc.Close()
	requests := 1 + rnd.IntN(40)
	var streams sync.WaitGroup
	for range http2Streams {
		rnd := rand.New(rand.NewPCG(rnd.Uint64(), 0))
		streams.Go(func() {
			for n := 0; n < requests && !r.pausing.Load() && ctx.Err() == nil && cc.CanTakeNewRequest(); n++ {
				a := r.draw(st, "HTTP/2", rnd)
				if err := r.stream(ctx, cc, a, rnd); err != nil {
					before := n
					if isGoAway(err) {
						before = 1 // HTTP/2 reports which requests were not processed: clients send them again
					}
					r.ended([]*request{a}, before, err)
				}
				r.think(ctx, rnd)
			}
		})
	}
	streams.Wait()
	return nil
}

// useCredit is an honest HTTP/2 client that has many large responses at once, and returns credit for each
// DATA frame.
func (r *run) useCredit(ctx context.Context, st *instance, rnd *rand.Rand) error {
	const kind, requests, atOnce = "HTTP/2 with credit by the frame", 250, 100
	cc, err := r.dialHTTP2(ctx, st, kind, smallWindows, rnd)
	if err != nil {
		return err
	}
	defer cc.Close()
	var opened atomic.Int64
	var ended sync.Once
	var streams sync.WaitGroup
	for range atOnce {
		rnd := rand.New(rand.NewPCG(rnd.Uint64(), 0))
		streams.Go(func() {
			for opened.Add(1) <= requests && !r.pausing.Load() && ctx.Err() == nil && cc.CanTakeNewRequest() {
				a := r.draw(st, kind, rnd)
				a.method, a.body, a.path, a.healthy, a.fansOut, a.deadline, a.outage = "GET", nil, "/large", "", false, maxDeadline, 0
				a.inHeader = true
				err := r.stream(ctx, cc, a, rnd)
				var reset http2.StreamError // a single stream may end: abandoned requests still count
				if err != nil && !errors.As(err, &reset) && !isGoAway(err, http2.ErrCodeNo) && !st.starved() {
					ended.Do(func() { r.broken.add(kept, "%s: after %d requests: %v", st.name, opened.Load(), err) })
				}
			}
		})
	}
	streams.Wait()
	for wait := rnd.IntN(100); wait > 0 && !r.pausing.Load() && ctx.Err() == nil; wait-- {
		rig.Sleep(ctx, 100*time.Millisecond)
	}
	return nil
}

// stream sends a request and judges its response. Now and then the client abandons the request. The error says why
// there was no response.
func (r *run) stream(ctx context.Context, cc *http2.ClientConn, a *request, rnd *rand.Rand) error {
	wait := a.deadline + allowance + patience
	abandons := rnd.IntN(20) == 0
	if abandons {
		wait = time.Duration(rnd.Int64N(int64(50 * time.Millisecond)))
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	req, body := a.message(ctx)
	body.piece = 9000
	if rnd.IntN(4) == 0 {
		body.pause = time.Duration(rnd.IntN(20)) * time.Millisecond
	}
	stalled, from := a.st.stalls.total(), time.Now()
	res, err := cc.RoundTrip(req)
	var text []byte
	took := time.Since(from)
	if err == nil {
		text, err = io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			err = &cutError{err}
		}
	}
	switch {
	case abandons && err != nil, ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return nil
	case err != nil:
		return err
	}
	// The clock starts after the upload, since adbuffer cannot make the upload shorter.
	r.judge(a, &response{status: res.StatusCode, header: res.Header, body: text, took: took}, a.st.stalls.total()-stalled, body.sendTime())
	return nil
}

// isGoAway reports whether a request failed because its connection had received a GOAWAY, with one of these codes if
// any are given. The client of x/net exports only one of its errors for that.
func isGoAway(err error, codes ...http2.ErrCode) bool {
	var goAway http2.GoAwayError
	if errors.As(err, &goAway) {
		return len(codes) == 0 || slices.Contains(codes, goAway.ErrCode)
	}
	return strings.HasPrefix(err.Error(), "http2: Transport received Server's graceful shutdown GOAWAY") ||
		strings.HasPrefix(err.Error(), "http2: client conn not usable")
}
