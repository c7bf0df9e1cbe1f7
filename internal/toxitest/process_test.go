package toxitest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"adbuffer/internal/e2e"
	"adbuffer/internal/testsupport"
)

func TestMain(m *testing.M) {
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxics log through a logger of their own
	// toxiproxy leaves goroutines behind.
	const toxiproxy = "github.com/Shopify/toxiproxy/v2"
	e2e.Main(m, goleak.IgnoreAnyFunction(toxiproxy+"/toxics.(*ToxicStub).Run"),
		goleak.IgnoreAnyFunction(toxiproxy+".(*ToxicLink).read"), goleak.IgnoreAnyFunction(toxiproxy+".(*ToxicLink).write"))
}

// process is an adbuffer that runs with its default timeouts.
type process struct{ *e2e.Process }

// start runs adbuffer with a configuration, for the length of the test.
func start(t *testing.T, config string) *process {
	t.Helper()
	env := []string{"ADBUFFER_SERVER_LISTEN=127.0.0.1:0", "ADBUFFER_ADMIN_LISTEN=127.0.0.1:0", "ADBUFFER_SERVER_DRAIN_DELAY=0s"}
	return &process{e2e.Serve(t, e2e.WriteConfig(t, config), env...)}
}

// response is the response that a client got.
type response struct {
	status int
	source string // X-Adbuffer-Source
	cb     string // X-Echo-Cb
	body   []byte
	took   time.Duration
}

func (r *response) String() string {
	return fmt.Sprintf("%d %s after %v, %d bytes: %.100q", r.status, r.source, r.took.Round(time.Millisecond), len(r.body), r.body)
}

// client returns a client with a connection of its own.
func client() *http.Client {
	return &http.Client{Transport: &http.Transport{}, Timeout: testsupport.Patience}
}

// ask sends a request to an SSP. An error means that adbuffer closed without a response.
func (p *process) ask(c *http.Client, deadline time.Duration, method, ssp, cb, body string) (*response, error) {
	req, err := http.NewRequest(method, "http://"+p.TrafficAddr+"/fillbuffer/"+ssp+"?cb="+cb, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Adbuffer-Timeout-Ms", strconv.FormatInt(deadline.Milliseconds(), 10))
	began := time.Now()
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the response to %s was cut", cb), err)
	}
	return &response{res.StatusCode, res.Header.Get("X-Adbuffer-Source"), res.Header.Get("X-Echo-Cb"), text, time.Since(began)}, nil
}
