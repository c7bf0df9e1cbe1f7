package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// StartScripted runs an SSP that responds to every request with the same bytes, and returns
// its URL.
func StartScripted(t testing.TB, raw string) string {
	t.Helper()
	url, _ := StartScriptedUntil(t, raw)
	return url
}

// StartScriptedUntil is StartScripted with a function that closes the SSP's
// connections, so that no request waits for it any longer.
func StartScriptedUntil(t testing.TB, raw string) (url string, hangUp func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	hangUp = sync.OnceFunc(func() {
		close(over)
		l.Close()
	})
	t.Cleanup(hangUp)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				<-over
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
	return "http://" + l.Addr().String() + "/bid", hangUp
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
