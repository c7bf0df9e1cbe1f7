package main

import (
	"context"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// load sends requests at one rate with Poisson arrivals, whatever comes of them:
// a request that waits does not hold up the next.
type load struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	client *http.Client

	mu           sync.Mutex
	bySource     map[string]int // of answers, by status and X-Adbuffer-Source
	firstRefused time.Time      // when the first request got a 503
}

func startLoad(parent context.Context, url string, perSecond float64) *load {
	ctx, cancel := context.WithCancel(parent)
	l := &load{cancel: cancel, bySource: map[string]int{}, client: &http.Client{
		Transport: &http.Transport{MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096}, Timeout: 10 * time.Second,
	}}
	l.done.Go(func() {
		next := time.Now()
		for ctx.Err() == nil {
			next = next.Add(time.Duration(rand.ExpFloat64() / perSecond * float64(time.Second)))
			time.Sleep(time.Until(next))
			l.done.Go(func() { l.send(url) })
		}
	})
	return l
}

func (l *load) send(url string) {
	res, err := l.client.Get(url)
	what := "no answer"
	if err == nil {
		io.Copy(io.Discard, res.Body) //nolint:errcheck // what came counts
		res.Body.Close()              //nolint:errcheck // as above
		what = strconv.Itoa(res.StatusCode) + " " + res.Header.Get("X-Adbuffer-Source")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bySource[what]++
	if l.firstRefused.IsZero() && (err != nil || res.StatusCode != http.StatusOK) {
		l.firstRefused = time.Now()
	}
}

// stop ends it and waits for the last answers.
func (l *load) stop() {
	l.cancel()
	l.done.Wait()
	l.client.CloseIdleConnections()
}

func (l *load) counts() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.bySource)
}

func (l *load) refusedAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.firstRefused
}
