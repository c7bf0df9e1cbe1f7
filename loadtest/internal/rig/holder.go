package rig

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"adbuffer/loadtest/internal/load"
)

// Hold opens n connections to a server, sends a request on each, and keeps them idle until release closes them.
func Hold(ctx context.Context, server string, q load.Template, n int, http2 bool) (release func(), err error) {
	held, errs := make([]*http.Transport, n), make([]error, n)
	var wait sync.WaitGroup
	atOnce := make(chan struct{}, 64) // bounds concurrent dials, so that they fit into the listen backlog of the server
	for i := range n {
		atOnce <- struct{}{}
		wait.Go(func() {
			defer func() { <-atOnce }()
			// Each connection has its own transport, because a shared one would reuse idle connections.
			held[i] = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: http2, DisableCompression: true}
			resp, _, err := Fetch(ctx, held[i], server, q) //nolint:bodyclose // Fetch closes it
			if err == nil && http2 != (resp.ProtoMajor == 2) {
				err = fmt.Errorf("the response came over %s", resp.Proto)
			}
			errs[i] = err
		})
	}
	wait.Wait()
	release = func() {
		for _, t := range held {
			t.CloseIdleConnections()
		}
	}
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) > 0 {
		release()
		return nil, fmt.Errorf("opened only %d of %d idle connections: %w", n-len(errs), n, errs[0])
	}
	return release, nil
}
