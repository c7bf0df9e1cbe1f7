package proxy_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// rawSSP is an SSP that keeps each request byte for byte.
type rawSSP struct {
	addr    string
	respond func(request string) (response string)
	got     chan string
}

func newRawSSP(t *testing.T, respond func(request string) (response string)) *rawSSP {
	l := testsupport.Listen(t)
	r := &rawSSP{l.Addr().String(), respond, make(chan string, 10)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(c)
		}
	}()
	return r
}

func (r *rawSSP) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		var text strings.Builder
		length := 0
		for line := ""; line != "\r\n"; {
			var err error
			if line, err = in.ReadString('\n'); err != nil {
				return
			}
			text.WriteString(line)
			if v, ok := strings.CutPrefix(line, "Content-Length: "); ok {
				length, _ = strconv.Atoi(strings.TrimSpace(v))
			}
		}
		if _, err := io.CopyN(&text, in, int64(length)); err != nil {
			return
		}
		r.got <- text.String()
		io.WriteString(c, r.respond(text.String()))
	}
}

// last returns the last request, empty for none.
func (r *rawSSP) last() string {
	select {
	case text := <-r.got:
		return text
	default:
		return ""
	}
}

// exchange sends a message on a connection of its own, and returns the final response.
func (m *modeProxy) exchange(t *testing.T, message []byte) (*http.Response, string) {
	t.Helper()
	c := m.dial()
	defer c.Close()
	c.Write(message)
	method, _, _ := strings.Cut(string(message), " ")
	in := bufio.NewReader(c)
	for {
		res, err := http.ReadResponse(in, &http.Request{Method: method})
		testsupport.MustTrue(t, err == nil, "%q: %v", message, err)
		b, err := io.ReadAll(res.Body)
		testsupport.NoError(t, err)
		if res.StatusCode != http.StatusContinue {
			return res, string(b)
		}
	}
}
