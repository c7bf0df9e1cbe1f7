package forwarding

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// Clients that read many large responses at once, and cancel one in twenty, keep their connection,
// however they return credit.
func TestClientsOfManyLargeResponsesKeepTheirConnection(t *testing.T) {
	t.Parallel()
	const streams = 400
	blob := make([]byte, 50_000)
	ssp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		w.Write(blob[:n])
	}))
	t.Cleanup(ssp.Close)
	e := e2e.NewAuthority(t)
	ab := e2e.Start(t, e.ServerSection("")+e2e.Single(ssp.URL+"/", "pool: {max_pending: 4000}"))
	url := "https://" + ab.TrafficAddr + "/fillbuffer"
	run := func(t *testing.T, pkg, program string, args ...string) string {
		t.Helper()
		return testsupport.Output(t, exec.CommandContext(t.Context(), testsupport.Needs(t, pkg, program), args...))
	}
	clients := map[string]func(*testing.T){
		"two WINDOW_UPDATEs for each DATA frame": func(t *testing.T) {
			readFrameByFrame(t, ab.TrafficAddr, e.ClientConfig(nil, "h2"), streams)
		},
		"Node": func(t *testing.T) {
			run(t, "nodejs", "node", "testdata/manyresponses.js", "https://"+ab.TrafficAddr, fmt.Sprint(streams))
		},
		"Python": func(t *testing.T) {
			run(t, "python3-httpx", "/usr/bin/python3", "testdata/manyresponses.py", url, fmt.Sprint(streams))
		},
		"h2load": func(t *testing.T) {
			out := run(t, "nghttp2-client", "h2load", "-n400", "-c2", "-m100", "-w14", "-W16", url+"?n=50000", url+"?n=3000")
			if !strings.Contains(out, " 400 succeeded, 0 failed, 0 errored") {
				t.Error(out)
			}
		},
		// curl gives up responses that are longer than it accepts: one in twenty.
		"curl": func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), testsupport.Needs(t, "curl", "curl"), "-sSk", "--http2", "--parallel", "--parallel-max", "100",
				"--max-filesize", "47650", "-o", "/dev/null", "-w", "%{exitcode}\n", url+"?n=[3000-50000:118]")
			out, _ := cmd.Output()
			codes := strings.Fields(string(out))
			slices.Sort(codes)
			if codes = slices.Compact(codes); !slices.Equal(codes, []string{"0", "63"}) {
				t.Errorf("curl's transfers ended with %v", codes)
			}
		},
	}
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			connections := func() float64 { return ab.Scrape().Sum("adbuffer_client_tls_handshakes_by_version_total") }
			before, want := connections(), 1.0
			client(t)
			if name == "h2load" {
				want = 2
			}
			testsupport.Equal(t, connections()-before, want, "the client opened %v connections")
			ab.WantMetric(0, "adbuffer_client_protocol_errors_total", "protocol=http2")
		})
	}
}

// readFrameByFrame is a client that returns credit for each DATA frame as it arrives, for the stream
// and for the connection.
func readFrameByFrame(t *testing.T, addr string, config *tls.Config, streams int) {
	conn, err := tls.Dial("tcp", addr, config)
	testsupport.NoError(t, err)
	defer conn.Close()
	var out, block bytes.Buffer
	framer, encoder := http2.NewFramer(&out, conn), hpack.NewEncoder(&block)
	out.WriteString(http2.ClientPreface)
	framer.WriteSettings()
	opened, open := 0, map[uint32]bool{}
	request := func() {
		id := uint32(2*opened + 1)
		block.Reset()
		for _, f := range []string{":method GET", ":scheme https", ":authority " + e2e.ListenerName, fmt.Sprintf(":path /fillbuffer?n=%d", 3000+opened*7919%47_000)} {
			name, value, _ := strings.Cut(f, " ")
			encoder.WriteField(hpack.HeaderField{Name: name, Value: value})
		}
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
		opened++
		open[id] = true
	}
	for range 100 {
		request()
	}
	for len(open) > 0 {
		if _, err := conn.Write(out.Bytes()); err != nil {
			t.Fatal(err)
		}
		out.Reset()
		f, err := framer.ReadFrame()
		testsupport.MustTrue(t, err == nil, "after %d streams: %v", opened, err)
		id, ended := f.Header().StreamID, false
		switch f := f.(type) {
		case *http2.DataFrame:
			framer.WriteWindowUpdate(id, uint32(len(f.Data())))
			framer.WriteWindowUpdate(0, uint32(len(f.Data())))
			if ended = f.StreamEnded(); !ended && open[id] && id%40 == 1 {
				framer.WriteRSTStream(id, http2.ErrCodeCancel)
				ended = true
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				framer.WriteSettingsAck()
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			t.Fatalf("after %d streams: %v", opened, f)
		}
		if ended && open[id] {
			delete(open, id)
			if opened < streams {
				request()
			}
		}
	}
}
