package sspsim

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// everythingFails applies each fault to a few percent of the requests.
func everythingFails() Behaviour {
	few := Share(0.02)
	return Behaviour{
		Latency: Lognormal(500*time.Microsecond, 5*time.Millisecond),
		Response: Response{NoBid: Share(0.2), Echo: true, Size: Size{P50: 1000, P95: 20_000, Max: 50_000}, HTTP10: few, ReadToEOF: few,
			Chunked: Share(0.2), Trailers: few, Interim: few, Cookies: few},
		Connections: Connections{MaxRequests: 50, IdleTimeout: Duration(50 * time.Millisecond), MaxStreams: 40, HTTP1Only: Share(0.3)},
		Faults: Faults{Hang: few, Stall: few, Reset: few, CutHead: few, CutBody: few, RefuseStream: few,
			ResetStream: ResetStream{Chance: few, AfterHead: true}, GoAway: GoAway{Chance: few, Exclude: true}, Status: Status{Chance: few},
			Drip: Drip{Chance: few, Bytes: 500, Pause: Duration(100 * time.Microsecond)}, Unsolicited: Unsolicited{Chance: few}, Leftover: few,
			OversizedHead: Oversized{Chance: few}, OversizedBody: Oversized{Chance: few, Bytes: 200_000}, Malformed: Malformed{Chance: few}},
	}
}

// TestNoResponseHoldsTheIDOfAnotherRequest sends many requests with all faults on. The client is
// net/http. The test does not check its errors. It checks that the simulator mixes up no requests
// and counts each one.
func TestNoResponseHoldsTheIDOfAnotherRequest(t *testing.T) {
	for _, protocol := range []Protocol{HTTP1, TLSAuto, H2C} {
		b := everythingFails()
		if protocol != H2C {
			// net/http can take unsolicited responses for the response to a request that it has
			// just sent. Then every caller gets the response to the previous request.
			b.Faults.Leftover, b.Faults.Unsolicited = Chance{}, Unsolicited{}
		}
		s := start(t, Options{Protocol: protocol, Seed: 4, Behaviour: b})
		var client *http.Client
		if protocol == H2C {
			client = netHTTPClient(t, s)
		} else {
			tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.CA().Pool()}, MaxIdleConnsPerHost: 50}
			if err := http2.ConfigureTransport(tr); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(tr.CloseIdleConnections)
			client = &http.Client{Transport: tr}
		}
		var good atomic.Int64
		var wg sync.WaitGroup
		// There are half as many workers as MaxStreams: net/http may open a worker's next stream
		// before it resets the one that timed out, and does not know the limit at first.
		for w := range 20 {
			client := *client // with its own timeout
			wg.Go(func() {
				timeout := 300 * time.Millisecond // doubled each time, so that slow machines get responses too
				for i := range 25 {
					client.Timeout = timeout
					id := fmt.Sprintf("w%d-%d", w, i)
					resp, body, err := post(&client, s.URL(), id)
					if os.IsTimeout(err) {
						timeout *= 2
					}
					if err != nil || body == Poison {
						continue
					}
					if resp.StatusCode == 200 && !strings.HasPrefix(body, `{"id":"`+id+`"`) || resp.Header.Get("X-Echo-Cb") != id {
						t.Errorf("%s: response to %q, %.80q", id, resp.Header.Get("X-Echo-Cb"), body)
					}
					good.Add(1)
				}
			})
		}
		wg.Wait()
		client.CloseIdleConnections()
		s.CloseConnections()
		s.await(t, "the end", func(c Counters) bool { return c.InFlight == 0 && c.OpenConnections == 0 })
		n := s.Counters()
		if good := good.Load(); good < 50 || n.Responded < uint64(good) || n.Responded > n.Requests || n.BadRequests != 0 {
			t.Errorf("%s: %d good responses, counters %+v", protocol, good, n)
		}
	}
}

// post returns a response with its whole body.
func post(client *http.Client, url, id string) (*http.Response, string, error) {
	resp, err := client.Post(url+"?cb="+id, "application/json", strings.NewReader(`{"id":"`+id+`"}`))
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

func init() { log.SetOutput(io.Discard) } // net/http logs unsolicited responses
