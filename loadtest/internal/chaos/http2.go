package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

const (
	http2Clients = 3 // of each encrypted instance
	http2Streams = 6 // of each HTTP/2 client at once
)

// patience is added to the time in which a response must come: the machine itself may take it.
const patience = 20 * time.Second

// useHTTP2 opens a connection and sends requests on it until one side closes it or clients pause.
func (r *run) useHTTP2(ctx context.Context, st *instance, rnd *rand.Rand) error {
	conn, err := r.dial(ctx, st, honest(rnd), "HTTP/2", "h2")
	if err != nil {
		return err
	}
	defer conn.Close()
	// A Transport would send requests again, so the client manages its connection itself.
	cc, err := (&http2.Transport{}).NewClientConn(conn)
	if err != nil {
		return fmt.Errorf("HTTP/2: %w", err)
	}
	defer cc.Close()
	requests := 1 + rnd.IntN(40)
	var streams sync.WaitGroup
	for range http2Streams {
		rnd := rand.New(rand.NewPCG(rnd.Uint64(), 0))
		streams.Go(func() {
			for n := 0; n < requests && !r.pausing.Load() && ctx.Err() == nil && cc.CanTakeNewRequest(); n++ {
				r.stream(ctx, st, cc, rnd, n)
				r.think(ctx, rnd)
			}
		})
	}
	streams.Wait()
	return nil
}

// stream sends one request and judges its response. Now and then the client abandons it. n is how
// many requests the same goroutine has sent on the connection before.
func (r *run) stream(ctx context.Context, st *instance, cc *http2.ClientConn, rnd *rand.Rand, n int) {
	a := r.draw(st, "HTTP/2", rnd)
	wait := a.deadline + r.options.allowance + patience
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
	stalled, from := st.stalls.total(), time.Now()
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
	case err != nil:
		if goneAway(err) {
			n = 1 // HTTP/2 reports which requests were not processed: clients send them again
		}
		r.ended([]*request{a}, n, err)
	default:
		// The clock starts behind the upload: adbuffer cannot make it shorter.
		r.judge(a, &response{status: res.StatusCode, header: res.Header, body: text, took: took}, st.stalls.total()-stalled, body.took())
	}
}

// goneAway reports whether a connection took no more requests. The client of x/net exports only one
// of these errors.
func goneAway(err error) bool {
	var goAway http2.GoAwayError
	return errors.As(err, &goAway) || strings.HasPrefix(err.Error(), "http2: Transport received Server's graceful shutdown GOAWAY") ||
		strings.HasPrefix(err.Error(), "http2: client conn not usable")
}
