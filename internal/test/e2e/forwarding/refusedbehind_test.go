package forwarding

import (
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// beforeLingerEnds calls read, which returns when adbuffer could begin to linger, and an error if the
// client lost bytes. adbuffer lingers for 2 s. A client that a slow machine keeps from reading for
// longer may lose bytes, and tries again.
func beforeLingerEnds(t *testing.T, read func() (began time.Time, err error)) {
	t.Helper()
	for range 10 {
		began, err := read()
		if err == nil {
			return
		}
		if took := time.Since(began); took < 2*time.Second {
			t.Fatalf("after %v: %v", took, err)
		}
	}
	t.Error("the machine is too slow for this test")
}

// adbuffer refuses a request and closes the connection. The responses before it, and its own, must
// still arrive. Closing a socket with unread bytes would send RST, and the client's kernel would
// discard the unread responses.
func TestARefusedRequestLeavesTheResponsesBeforeItWhole(t *testing.T) {
	t.Parallel()
	const size = 700_000
	s := e2e.SSPWith(t, sspsim.Behaviour{Response: sspsim.Response{Kind: sspsim.Raw, Size: sspsim.Size{Constant: size}}})
	ab := e2e.Start(t, e2e.Single(s.URL()))
	for _, row := range []struct{ name, refused string }{
		{"a broken head", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nX-A : b\r\n\r\n"},
		{"a method", "DELETE /fillbuffer HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"a long head", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nX-A: " + strings.Repeat("a", 20_000) + "\r\n\r\n"},
		{"a large body", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("b", 300_000)},
	} {
		t.Run(row.name, func(t *testing.T) {
			beforeLingerEnds(t, func() (time.Time, error) {
				c := ab.Dial()
				c.T = t
				began := time.Now()
				go c.Conn.Write([]byte(e2e.Request("GET", "/fillbuffer", "") + row.refused + strings.Repeat(e2e.Request("GET", "/fillbuffer", ""), 20)))
				time.Sleep(300 * time.Millisecond) // it has been refused, and the client has read nothing
				first, err := c.TryRead("GET")
				if err != nil {
					return began, err
				}
				testsupport.True(t, first.Status == 200 && len(first.Body) == size, "status %d, %d bytes", first.Status, len(first.Body))
				refused, err := c.TryRead("GET")
				if err == nil && refused.Status/100 != 4 {
					t.Errorf("status %d of the refused one", refused.Status)
				}
				return began, err
			})
		})
	}
	// A client that continues to send after a refusal is reset: adbuffer reads a bounded number of its bytes.
	c := ab.Dial()
	c.Send("GET /fillbuffer HTTP/1.1\r\nX-A : b\r\n\r\n")
	c.Read("GET").WantStatus("a broken head", 400)
	junk := make([]byte, 64<<10)
	testsupport.Eventually(t, "the connection was reset", func() bool {
		_, err := c.Conn.Write(junk)
		return err != nil
	})
}

// During a drain too, requests that are pipelined after the last one do not destroy its response.
func TestADrainLeavesResponsesBeforeUnreadRequestsWhole(t *testing.T) {
	t.Parallel()
	const size = 700_000
	beforeLingerEnds(t, func() (time.Time, error) {
		s := e2e.StartGated(t, sspsim.Options{Behaviour: sspsim.Behaviour{Response: sspsim.Response{Kind: sspsim.Raw, Size: sspsim.Size{Constant: size}}}})
		ab := e2e.Start(t, e2e.Single(s.URL()))
		c := ab.Dial()
		c.Send(e2e.Request("GET", "/fillbuffer", ""))
		e2e.AwaitInFlight(t, s.SSP, 1)
		ab.BeginDrain()
		began := time.Now()
		s.Open()
		go c.Conn.Write([]byte(strings.Repeat(e2e.Request("POST", "/fillbuffer", strings.Repeat("b", 50_000)), 15)))
		time.Sleep(500 * time.Millisecond) // the response has been written, and the client has read nothing
		for closing := false; !closing; {
			got, err := c.TryRead("GET")
			if err != nil {
				return began, err
			}
			if got.WantStatus("a request before the end", 200); len(got.Body) != size {
				t.Fatalf("%d bytes", len(got.Body))
			}
			closing = got.Header("Connection") == "close"
		}
		ab.WantExit(0)
		return began, nil
	})
}
