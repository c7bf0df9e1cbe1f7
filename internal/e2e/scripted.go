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

// StartScripted runs an SSP that gives every request the same bytes, and
// returns its URL.
func StartScripted(t testing.TB, raw string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) //nolint:errcheck // the test is over
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close() //nolint:errcheck // nothing is left to be done about it
				for r := bufio.NewReader(c); ReadRequest(r) == nil; {
					io.WriteString(c, raw) //nolint:errcheck // the next read fails, too
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
