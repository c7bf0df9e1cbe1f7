package proxy_test

import (
	"bufio"
	"io"
	"net"
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
