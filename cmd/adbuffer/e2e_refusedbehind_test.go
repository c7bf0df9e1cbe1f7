package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/sspsim"
)

// A request that adbuffer refuses, and after which it closes the connection, must
// not destroy the responses before it, nor its own: closing a socket with unread
// bytes sends RST, which makes a client's kernel throw away what it has not read.
func TestARefusedRequestLeavesTheResponsesBeforeItWhole(t *testing.T) {
	t.Parallel()
	const size = 700_000
	s := sspWith(t, sspsim.Behaviour{Answer: sspsim.Answer{Kind: sspsim.Raw, Size: sspsim.Size{Constant: size}}})
	ab := start(t, single(s.URL()))
	for _, row := range []struct{ name, refused string }{
		{"a broken head", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nX-A : b\r\n\r\n"},
		{"a method", "DELETE /fillbuffer HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"a long head", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nX-A: " + strings.Repeat("a", 20_000) + "\r\n\r\n"},
		{"a large body", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("b", 300_000)},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := ab.dial()
			c.t = t
			go c.c.Write([]byte(request("GET", "/fillbuffer", "") + row.refused + strings.Repeat(request("GET", "/fillbuffer", ""), 20)))
			time.Sleep(300 * time.Millisecond) // it has been refused, and nothing has been read
			if got := c.read("GET"); got.status != 200 || len(got.body) != size {
				t.Errorf("status %d, %d bytes", got.status, len(got.body))
			}
			if got := c.read("GET"); got.status/100 != 4 {
				t.Errorf("status %d of the refused one", got.status)
			}
		})
	}
}

// A client that sends on and on after a refusal is not heard for ever.
func TestAClientThatSendsOnAfterARefusalIsReset(t *testing.T) {
	t.Parallel()
	ab := start(t, single(healthy(t).URL()))
	c := ab.dial()
	c.send("GET /fillbuffer HTTP/1.1\r\nX-A : b\r\n\r\n")
	c.read("GET").wantStatus("a broken head", 400)
	junk := make([]byte, 64<<10)
	eventually(t, "the connection is reset", func() bool {
		_, err := c.c.Write(junk)
		return err != nil
	})
}

// In a drain too, requests that are pipelined behind the last response do not
// destroy it.
func TestADrainLeavesResponsesBeforeUnreadRequestsWhole(t *testing.T) {
	t.Parallel()
	const size = 700_000
	s := startGated(t, sspsim.Options{Behaviour: sspsim.Behaviour{Answer: sspsim.Answer{Kind: sspsim.Raw, Size: sspsim.Size{Constant: size}}}})
	ab := start(t, single(s.URL()))
	c := ab.dial()
	c.send(request("GET", "/fillbuffer", ""))
	awaitInFlight(t, s.SSP, 1)
	ab.signal(syscall.SIGTERM)
	eventually(t, "it drains", func() bool { _, ok := ab.log.line("draining"); return ok })
	s.open()
	go c.c.Write([]byte(strings.Repeat(request("POST", "/fillbuffer", strings.Repeat("b", 50_000)), 15)))
	time.Sleep(500 * time.Millisecond) // it has been answered, and nothing has been read
	for closing := false; !closing; {
		got := c.read("GET").wantStatus("a request before the end", 200)
		if len(got.body) != size {
			t.Fatalf("%d bytes", len(got.body))
		}
		closing = got.header("Connection") == "close"
	}
	ab.wantExit(0)
}
