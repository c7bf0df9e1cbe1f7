package load

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/testsupport"
)

func start(t *testing.T) (*Constant, []byte) {
	t.Helper()
	body := ConstantBody(1000)
	s, err := StartConstant("127.0.0.1:0", body)
	testsupport.NoError(t, err)
	t.Cleanup(s.Close)
	return s, body
}

func TestGetAndPostShareOneConnection(t *testing.T) {
	s, body := start(t)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for i := range 6 {
		method, sent := "GET", ""
		if i%2 == 1 {
			method, sent = "POST", strings.Repeat("p", 5000*i)
		}
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
			testsupport.Equal(t, c.Reused, (i > 0), "request %[2]d on a connection that had carried one: %[1]v", i)
		}})
		req, err := http.NewRequestWithContext(ctx, method, "http://"+s.Addr()+"/bid", strings.NewReader(sent))
		testsupport.NoError(t, err)
		resp, err := client.Do(req)
		testsupport.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !bytes.Equal(got, body) || resp.Header.Get("Content-Type") != "application/json" {
			t.Fatalf("request %d: %d bytes, %v", i, len(got), err)
		}
	}
}

func TestPipelinedRequestsInPiecesGetTheirResponsesAndCloseIsKept(t *testing.T) {
	s, body := start(t)
	c, err := net.Dial("tcp", s.Addr())
	testsupport.NoError(t, err)
	defer c.Close()
	const n = 50
	text := strings.Repeat("POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
		n-1) + "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	go func() {
		for len(text) > 0 {
			k := min(37, len(text))
			fmt.Fprint(c, text[:k])
			text = text[k:]
		}
	}()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	got, err := io.ReadAll(c)
	testsupport.True(t, err == nil && bytes.Count(got, body) == n, "%d responses, want %d; %v", bytes.Count(got, body), n, err)
}

func TestUnreadResponsesAreKeptUntilTheyAreRead(t *testing.T) {
	s, body := start(t)
	c, err := net.Dial("tcp", s.Addr())
	testsupport.NoError(t, err)
	defer c.Close()
	const n = 20000 // 20 MB of responses, more than sockets hold
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(c, strings.Repeat("GET / HTTP/1.1\r\nHost: h\r\n\r\n", n))
		sent <- err
	}()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	testsupport.NoError(t, <-sent)
	in, got := bufio.NewReader(c), make([]byte, len(body))
	for i := range n {
		resp, err := http.ReadResponse(in, nil)
		testsupport.MustTrue(t, err == nil, "after %d responses of %d: %v", i, n, err)
		if _, err = io.ReadFull(resp.Body, got); err != nil || !bytes.Equal(got, body) {
			t.Fatalf("response %d: %v, %.20q", i, err, got)
		}
	}
}
