package limits

import (
	"bytes"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// slowConnections is the number of connections in each attack.
const slowConnections = 200

// slowhttptest opens connections, and sends or reads as slowly as it can. A normal client is served
// meanwhile, and the slow connections close as configured.
func TestSlowClientsOfSlowhttptest(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		args string
		// refused says that adbuffer ends the connections with 408.
		refused bool
	}{
		// With -l slowhttptest ends after so many seconds, or when all its connections are closed.
		{"slow headers", "-H -x 24 -l 60", true},
		{"slow body", "-B -s 8192 -x 24 -t POST -l 60", true},
		{"slow read", "-X -w 512 -y 1024 -n 5 -z 32 -l 12", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			program := testsupport.Needs(t, "slowhttptest", "slowhttptest")
			s := e2e.SSPWith(t, sspsim.Behaviour{Response: sspsim.Response{Kind: sspsim.Raw, Size: sspsim.Size{Constant: 300_000}}})
			ab := e2e.Start(t, "server: {read_timeout: 2s, write_timeout: 2s}\n"+e2e.Single(s.URL()))
			args := strings.Fields(fmt.Sprintf("-c %d %s -i 1 -r %d -p 30 -u http://%s/fillbuffer", slowConnections, row.args, slowConnections, ab.TrafficAddr))
			var output bytes.Buffer
			slow := exec.Command(program, args...)
			slow.Stdout, slow.Stderr = &output, &output
			testsupport.NoError(t, slow.Start())
			// On a slow machine adbuffer closes the first connections before the last ones connect.
			testsupport.Eventually(t, "the slow clients are connected, or were", func() bool {
				m := ab.Scrape()
				return m.Value("adbuffer_client_connections")+m.Sum("adbuffer_requests_total") > slowConnections/2
			})
			normal := ab.StartTraffic(2, 10*time.Millisecond, "/fillbuffer?", "POST /fillbuffer?")
			// adbuffer closes them before slowhttptest ends by itself.
			testsupport.Eventually(t, "the slow clients are disconnected", func() bool {
				return ab.Scrape().Value("adbuffer_client_connections") <= 3
			})
			normal.AwaitSent(t, 20)
			normal.Stop()
			if m := ab.Scrape(); row.refused {
				if n := m.Sum("adbuffer_requests_total", "outcome=bad_request"); n < slowConnections {
					t.Errorf("%v requests were refused, want %d", n, slowConnections)
				}
			}
			err := slow.Wait()
			testsupport.MustTrue(t, err == nil, "%v\n%s", err, &output)
			out := terminalColour.ReplaceAllString(output.String(), "")
			if !strings.Contains(out, "service available:   YES") || strings.Contains(out, "service available:   NO") {
				t.Errorf("the service was not available:\n%s", testsupport.Tail(out, 2000))
			}
			// slowhttptest prints its figures every five seconds, and its end at once.
			if row.refused && !strings.Contains(out, "Exit status: No open connections left") {
				t.Errorf("connections were not closed:\n%s", testsupport.Tail(out, 2000))
			}
		})
	}
}

var terminalColour = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")
