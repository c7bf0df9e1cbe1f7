package forwarding

import (
	"fmt"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

func TestErrorsThatLeaveFramingIntactKeepTheConnection(t *testing.T) {
	t.Parallel()
	good, bad := e2e.Healthy(t), e2e.Failing(t, sspsim.Faults{Reset: sspsim.Always})
	ab := e2e.Start(t, fmt.Sprintf(`
ssps:
  - {name: good, endpoints: [%q]}
  - {name: bad, endpoints: [%q], qps: {limit: 1000, burst: 1000}}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [good, bad], client_choice: true}
`, good.URL(), bad.URL()))
	c := ab.Dial()
	body := strings.Repeat("GET / HTTP/1.1\n", 3000) // no line of the body is a request line
	for _, row := range []struct {
		method, target, body string
		fields               []string
		status               int
	}{
		{"GET", "/nowhere", "", nil, 404},
		{"POST", "/nowhere", body, nil, 404}, // adbuffer reads its body and discards it
		{"PUT", "/fillbuffer", body, nil, 405},
		{"POST", "/fillbuffer/unknown", body, nil, 404},
		{"POST", "/fillbuffer", body, []string{"X-Adbuffer-Timeout-Ms: x"}, 400},
		{"POST", "/fillbuffer", body, []string{"X-Adbuffer-Timeout-Ms: 1"}, 504},
		{"POST", "/fillbuffer/bad", body, nil, 502},
		{"GET", "/fillbuffer/bad", "", nil, 502},
		{"HEAD", "/nowhere", "", nil, 404},
	} {
		a := c.Do(row.method, row.target, row.body, row.fields...).WantStatus(row.method+" "+row.target, row.status)
		testsupport.Equal(t, a.Header("Connection"), "", "%[2]s %[3]s: Connection: %[1]q", row.method, row.target)
		c.Post("/fillbuffer", body).WantFill("good")
	}
}
