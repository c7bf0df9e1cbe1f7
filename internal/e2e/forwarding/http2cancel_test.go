package forwarding

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"adbuffer/internal/e2e"
)

// A client that resets its stream makes adbuffer reset the SSP's stream, long before the deadline.
// Both connections stay open.
func TestResetStreamIsResetAtTheSSP(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	asked, left := make(chan struct{}, 10), make(chan error, 10)
	ssp := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "" {
			io.WriteString(w, "{}") //nolint:errcheck // the client shows the error
			return
		}
		asked <- struct{}{}
		<-r.Context().Done()
		left <- r.Context().Err()
	}))
	ssp.Config.Protocols = unencryptedHTTP2()
	ssp.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	ssp.Start()
	defer ssp.Close()
	ab := e2e.StartReloadable(t, "server: {h2c: true}\n"+e2e.Single(ssp.URL+"/", "protocol: h2c"), "ADBUFFER_DEADLINE_DEFAULT=10m", "ADBUFFER_DEADLINE_MAX=10m")
	transport := &http.Transport{Protocols: unencryptedHTTP2()}
	defer transport.CloseIdleConnections()
	get := func(ctx context.Context, query string) error {
		req, err := http.NewRequestWithContext(ctx, "GET", "http://"+ab.TrafficAddr+"/fillbuffer"+query, nil)
		if err != nil {
			return err
		}
		res, err := transport.RoundTrip(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, res.Body)
		return errors.Join(err, res.Body.Close())
	}
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- get(ctx, "?wait") }()
		<-asked
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the client got %v", err)
		}
		if err := <-left; !errors.Is(err, context.Canceled) { // the error of net/http for RST_STREAM
			t.Errorf("the SSP's request ended with %v", err)
		}
		if err := get(t.Context(), ""); err != nil {
			t.Error(err)
		}
	}
	ab.AwaitMetric(5, "adbuffer_requests_total", "route=default", "outcome=client_gone")
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections to the SSP, want one that stays open", n)
	}
}
