package load

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func start(t *testing.T) (*Constant, []byte) {
	t.Helper()
	body := ConstantBody(1000)
	s, err := StartConstant("127.0.0.1:0", body)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, body
}

func TestGetAndPostShareOneConnection(t *testing.T) {
	s, body := start(t)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for i := range 6 {
		var resp *http.Response
		var err error
		if i%2 == 0 {
			resp, err = client.Get("http://" + s.Addr() + "/bid")
		} else {
			resp, err = client.Post("http://"+s.Addr()+"/bid", "application/json", strings.NewReader(strings.Repeat("p", 5000*i)))
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !bytes.Equal(got, body) || resp.Header.Get("Content-Type") != "application/json" {
			t.Fatalf("request %d: %d bytes, %v", i, len(got), err)
		}
	}
	if s.Connections() != 1 || s.Requests() != 6 {
		t.Errorf("%d connections, %d requests, want 1 and 6", s.Connections(), s.Requests())
	}
}

func TestPipelinedRequestsInPiecesAreAllAnsweredAndCloseIsKept(t *testing.T) {
	s, body := start(t)
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const n = 50
	text := strings.Repeat("POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", n-1) + "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	go func() {
		for len(text) > 0 {
			k := min(37, len(text))
			fmt.Fprint(c, text[:k])
			text = text[k:]
		}
	}()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	got, err := io.ReadAll(c)
	if err != nil || bytes.Count(got, body) != n {
		t.Errorf("%d answers, want %d; %v", bytes.Count(got, body), n, err)
	}
}

func TestUnreadResponsesAreKeptUntilTheyAreRead(t *testing.T) {
	s, body := start(t)
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const n = 20000 // 20 MB of responses, more than sockets hold
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(c, strings.Repeat("GET / HTTP/1.1\r\n\r\n", n))
		sent <- err
	}()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(io.LimitReader(c, int64(n*len(s.answer))))
	if err != nil || bytes.Count(got, body) != n {
		t.Errorf("%d answers, want %d; %v", bytes.Count(got, body), n, err)
	}
}
