package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
)

// StartScripted runs an SSP that responds to every request with the same bytes, and returns
// its URL. Its connections close at the end of the test.
func StartScripted(t testing.TB, raw string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		close(ended)
		l.Close()
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				<-ended
				c.Close()
			}()
			go func() {
				defer c.Close()
				for r := bufio.NewReader(c); ReadRequest(r) == nil; {
					io.WriteString(c, raw)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String() + "/bid"
}

// ReadRequest reads one request with a Content-Length, or without a body.
func ReadRequest(r *bufio.Reader) error {
	length := 0
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		if name, value, ok := strings.Cut(line, ":"); ok && strings.EqualFold(name, "Content-Length") {
			length, _ = strconv.Atoi(strings.TrimSpace(value))
		}
		if line == "\r\n" {
			break
		}
	}
	_, err := r.Discard(length)
	return err
}

func ScriptedResponse(body string, fields ...string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s", strings.Join(append(fields, ""), "\r\n"), len(body), body)
}
