package forwarding

import (
	"fmt"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// malformed are the faults of an SSP that makes this protocol violation in each response.
func malformed(kind sspsim.Malformation) sspsim.Faults {
	return sspsim.Faults{Malformed: sspsim.Malformed{Chance: sspsim.Always, Kinds: []sspsim.Malformation{kind}}}
}

// brokenResponses are invalid responses.
var brokenResponses = []struct {
	name   string
	faults sspsim.Faults
	reason string
	names  []string
	http2  bool
}{
	{"reset instead of a response", sspsim.Faults{Reset: sspsim.Always}, "conn_lost", nil, false},
	{"closed within the head", sspsim.Faults{CutHead: sspsim.Always}, "conn_lost", nil, false},
	{"closed within the body", sspsim.Faults{CutBody: sspsim.Always}, "conn_lost", nil, false},
	{"two Content-Lengths", malformed(sspsim.TwoLengths), "bad_response", nil, false},
	{"an invalid chunk size", malformed(sspsim.BadChunk), "bad_response", nil, false},
	{"no status", malformed(sspsim.BadStatusLine), "bad_response", nil, false},
	{"NUL in a value", malformed(sspsim.NulInValue), "bad_response", nil, false},
	{"blank in a name", malformed(sspsim.SpaceInName), "bad_response", nil, false},
	{"a body over the limit", sspsim.Faults{OversizedBody: sspsim.Oversized{Chance: sspsim.Always, Bytes: 5000}}, "response_too_large", []string{"max_response_bytes"}, false},
	{"a head over the limit", sspsim.Faults{OversizedHead: sspsim.Oversized{Chance: sspsim.Always, Bytes: 5000}}, "response_too_large", []string{"max_response_header_bytes"}, false},

	{"HTTP/2: closed within the body", sspsim.Faults{CutBody: sspsim.Always}, "conn_lost", nil, true},
	{"HTTP/2: stream reset", sspsim.Faults{ResetStream: sspsim.ResetStream{Chance: sspsim.Always, AfterHead: true}}, "conn_lost", nil, true},
	{"HTTP/2: no :status", malformed(sspsim.H2NoStatus), "bad_response", nil, true},
	{"HTTP/2: an upper-case name", malformed(sspsim.H2Uppercase), "bad_response", nil, true},
	{"HTTP/2: a connection-specific field", malformed(sspsim.H2Connection), "bad_response", nil, true},
	{"HTTP/2: :status behind a field", malformed(sspsim.H2PseudoBehind), "bad_response", nil, true},
	{"HTTP/2: DATA before HEADERS", malformed(sspsim.H2DataFirst), "bad_response", nil, true},
	{"HTTP/2: no frames", malformed(sspsim.H2Garbage), "bad_response", nil, true},
	{"HTTP/2: a wrong SETTINGS", malformed(sspsim.H2SettingsBad), "bad_response", nil, true},
	{"HTTP/2: a wrong content-length", malformed(sspsim.H2WrongLength), "bad_response", nil, true},
	{"HTTP/2: a body over the limit", sspsim.Faults{OversizedBody: sspsim.Oversized{Chance: sspsim.Always, Bytes: 5000}}, "response_too_large", []string{"max_response_bytes"}, true},
	{"HTTP/2: a head over the limit", sspsim.Faults{OversizedHead: sspsim.Oversized{Chance: sspsim.Always, Bytes: 5000}}, "response_too_large", []string{"max_response_header_bytes"}, true},
}

func TestInvalidResponsesAre502AndCloseTheSSPConnection(t *testing.T) {
	t.Parallel()
	h1, h2 := e2e.Healthy(t), e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSHTTP2})
	ab := e2e.Start(t, fmt.Sprintf(`
ssp_defaults: {breaker: {enabled: false}, max_response_bytes: 4000, max_response_header_bytes: 2000}
ssps:
  - {name: h1, endpoints: [%q]}
  - {name: h2, endpoints: [%q], protocol: http2, tls: {ca_file: %s}}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [h1, h2], client_choice: true}
`, h1.URL(), h2.URL(), e2e.CAFile(t, h2)))
	c := ab.Dial()
	for _, broken := range brokenResponses {
		name, s := "h1", h1
		if broken.http2 {
			name, s = "h2", h2
		}
		e2e.SetBehaviour(t, s, sspsim.Behaviour{Faults: broken.faults})
		s.ResetCounters()
		want := e2e.Refusal{Status: 502, Reason: broken.reason, SSP: name, Names: broken.names}
		ab.WantRefusal(broken.name+", POST", want, func() *e2e.Response { return c.Post("/fillbuffer/"+name, `{"id":"1"}`) })
		e2e.WantRequests(t, s, 1) // the request may have been processed, so it is not sent again
		ab.WantRefusal(broken.name+", GET", want, func() *e2e.Response { return c.Get("/fillbuffer/" + name) })
		if !broken.http2 {
			e2e.AwaitCounters(t, s, broken.name+": the connection to the SSP is closed", func(n sspsim.Counters) bool { return n.OpenConnections == 0 })
		}
		e2e.SetBehaviour(t, s, sspsim.Behaviour{})
		c.Get("/fillbuffer/" + name).WantFill(name)
	}
}

// A response with a violation that leaves it readable is forwarded in correct form, but its
// connection carries no other request.
func TestDoubtfulResponsesAreForwardedAndCloseTheSSPConnection(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name      string
		behaviour sspsim.Behaviour
	}{
		{"obs-fold", sspsim.Behaviour{Faults: malformed(sspsim.ObsFold)}},
		{"bare LF", sspsim.Behaviour{Faults: malformed(sspsim.BareLF)}},
		{"Content-Length and Transfer-Encoding", sspsim.Behaviour{Faults: malformed(sspsim.LengthAndTE)}},
		{"HTTP/1.0", sspsim.Behaviour{Response: sspsim.Response{HTTP10: sspsim.Always}}},
		{"read to EOF", sspsim.Behaviour{Response: sspsim.Response{ReadToEOF: sspsim.Always}}},
		{"leftover", sspsim.Behaviour{Faults: sspsim.Faults{Leftover: sspsim.Always}}},
		{"Connection: close", sspsim.Behaviour{Connections: sspsim.Connections{MaxRequests: 1, Announce: true}}},
	}
	s := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(s.URL()))
	c := ab.Dial()
	for _, row := range rows {
		e2e.SetBehaviour(t, s, row.behaviour)
		s.ResetCounters()
		for range 3 {
			a := c.Get("/fillbuffer?cb=mine").WantFill("openx")
			if want := `{"id":"mine","seatbid":[{"bid":[{"id":"1","impid":"1","price":1.25,"adm":""}],"seat":"sim"}],"cur":"USD"}`; a.Body != want {
				t.Errorf("%s: body %s, want %s", row.name, a.Body, want)
			}
		}
		testsupport.Equal(t, s.Counters().Connections, 3, "%[2]s: %[1]d connections for 3 requests", row.name)
	}
}

// Bytes that an SSP sends after its response, or before a request, must reach no request.
func TestUnsolicitedBytesOfAnSSPReachNoClient(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		faults sspsim.Faults
		reason string // of a closed connection
	}{
		{"leftover", sspsim.Faults{Leftover: sspsim.Every(2)}, "leftover"},
		{"unsolicited", sspsim.Faults{Unsolicited: sspsim.Unsolicited{Chance: sspsim.Every(2)}}, "unsolicited"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := e2e.SSPWith(t, sspsim.Behaviour{Response: sspsim.Response{Echo: true}, Faults: row.faults})
			ab := e2e.Start(t, e2e.Single(s.URL(), "pool: {max_conns: 1}"))
			c := ab.Dial()
			const faults = 50 // each second request, and one request behind the last of them
			for i := range 2*faults + 1 {
				id := fmt.Sprintf("id-%d", i)
				a := c.Get("/fillbuffer?cb=" + id).WantFill("openx")
				if got := a.Header("X-Echo-Cb"); got != id || a.Body == sspsim.Poison {
					t.Fatalf("request %s got the response to %q: %s", id, got, a.Body)
				}
				if row.name == "unsolicited" && i%2 == 1 {
					e2e.AwaitCounters(t, s, "the SSP has sent its bytes", func(n sspsim.Counters) bool { return n.Faults["unsolicited"] == uint64(i+1)/2 })
				}
			}
			// Each fault costs its connection. The reason depends on when the bytes were seen.
			testsupport.Equal(t, s.Counters().Connections, faults+1, "%d connections")
			if n := ab.Metric("adbuffer_pool_connections_closed_total", "reason="+row.reason); n == 0 {
				t.Errorf("no connection was closed for %s", row.reason)
			}
		})
	}
}
