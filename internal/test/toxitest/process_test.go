package toxitest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"adbuffer/internal/test/e2e"
)

func TestMain(m *testing.M) {
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxics log through a logger of their own
	// toxiproxy leaves goroutines behind.
	const toxiproxy = "github.com/Shopify/toxiproxy/v2"
	e2e.Main(m, goleak.IgnoreAnyFunction(toxiproxy+"/toxics.(*ToxicStub).Run"),
		goleak.IgnoreAnyFunction(toxiproxy+".(*ToxicLink).read"), goleak.IgnoreAnyFunction(toxiproxy+".(*ToxicLink).write"))
}

// start runs adbuffer with a configuration and its default timeouts, for the length of the test.
func start(t *testing.T, config string) *e2e.Process {
	t.Helper()
	return e2e.Serve(t, e2e.WriteConfig(t, config), "ADBUFFER_SERVER_LISTEN=127.0.0.1:0", "ADBUFFER_ADMIN_LISTEN=127.0.0.1:0", "ADBUFFER_SERVER_DRAIN_DELAY=0s")
}

// statuses are the statuses that adbuffer may send for a failing SSP.
var statuses = map[string]int{"proxy/deadline": 504, "proxy/conn_lost": 502, "proxy/connect_failed": 502, "proxy/tls_failed": 502, "proxy/bad_response": 502, "proxy/pending_timeout": 503, "proxy/pending_full": 503}

// ask sends a request to an SSP. It returns an error if the response is late, another one, only a part, or none.
func ask(w *e2e.Worker, within time.Duration, method, ssp, cb, body string) (*e2e.Response, error) {
	began := time.Now()
	r, err := w.Exchange(method, "/fillbuffer/"+ssp+"?cb="+cb, body, fmt.Sprintf("X-Adbuffer-Timeout-Ms: %d", within.Milliseconds()))
	if err != nil {
		return nil, err
	}
	took, source, echo := time.Since(began), r.Header("X-Adbuffer-Source"), r.Header("X-Echo-Cb")
	right := statuses[source] == r.Status
	if source == "ssp/"+ssp {
		right = r.Status == 200 && echo == cb && len(r.Body) == bodySize && strings.HasPrefix(r.Body, cb)
	}
	if !right || took > within+allowance {
		return nil, fmt.Errorf("%s: %d %s after %v, cb %s, %d bytes: %.100q", cb, r.Status, source, took.Round(time.Millisecond), echo, len(r.Body), r.Body)
	}
	return r, nil
}
