//go:build !race

// A response of 64 MiB takes seconds under the race detector.

package admin

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// A response above the limit is an error, and not cut: a bundle would hold half of a part.
func TestAResponseThatIsTooLongIsAnError(t *testing.T) {
	more := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 1<<20)
		for range maxReplyBytes >> 20 {
			w.Write(chunk)
		}
		w.Write(chunk[:more])
	}))
	defer s.Close()
	c, err := NewClient(ClientOptions{URL: s.URL})
	testsupport.NoError(t, err)
	if body, err := c.Get(t.Context(), "/pools"); err != nil || len(body) != maxReplyBytes {
		t.Errorf("%d bytes, error %v", len(body), err)
	}
	more = 1
	if _, err := c.Get(t.Context(), "/pools"); err == nil || !strings.Contains(err.Error(), "longer than 67108864 bytes") {
		t.Errorf("a longer response: error %v", err)
	}
}

func TestAnErrorNamesTheFlagToChange(t *testing.T) {
	clients := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Adbuffer-Source", "proxy/no_route")
		w.WriteHeader(http.StatusNotFound)
	})
	closed, plain, unknown, long := httptest.NewServer(clients), httptest.NewServer(clients), httptest.NewUnstartedServer(clients), httptest.NewUnstartedServer(clients)
	closed.Close()
	defer plain.Close()
	cert := testsupport.Certificate("127.0.0.1")
	cert.Certificate = slices.Repeat(cert.Certificate, 11)
	long.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	for _, s := range []*httptest.Server{unknown, long} {
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		defer s.Close()
	}
	for url, want := range map[string]string{
		closed.URL:  "connection refused; see --admin, and admin.listen",
		unknown.URL: "; see --ca-file",
		long.URL:    "sent 11 certificates",
		plain.URL:   "listener for clients, not its admin listener; see --admin",
	} {
		c, err := NewClient(ClientOptions{URL: url})
		testsupport.NoError(t, err)
		if _, err := c.Get(t.Context(), "/ssps"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", url, err, want)
		}
	}
}
