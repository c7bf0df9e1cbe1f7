package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// client is one connection to adbuffer, with nothing between it and the test.
type client struct {
	t testing.TB
	c net.Conn
	r *bufio.Reader
}

// dial opens a connection, and closes it at the end of the test.
func (ab *adbuffer) dial() *client {
	ab.t.Helper()
	c, err := net.DialTimeout(ab.network, ab.traffic, patience)
	if err != nil {
		ab.t.Fatal(err)
	}
	ab.t.Cleanup(func() { c.Close() })      //nolint:errcheck // the test is over
	c.SetDeadline(time.Now().Add(patience)) //nolint:errcheck // a closed socket fails the read
	return &client{t: ab.t, c: c, r: bufio.NewReader(c)}
}

func (c *client) close() { c.c.Close() } //nolint:errcheck // nothing is left to be done about it

// send writes bytes as they are.
func (c *client) send(raw string) {
	c.t.Helper()
	if _, err := io.WriteString(c.c, raw); err != nil {
		c.t.Fatal(err)
	}
}

// request is the text of a request; fields are lines without their CRLF. A body
// is given a Content-Length.
func request(method, target, body string, fields ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: adbuffer.test\r\n", method, target)
	for _, f := range fields {
		b.WriteString(f + "\r\n")
	}
	if body != "" || method == "POST" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	return b.String() + "\r\n" + body
}

func (c *client) do(method, target, body string, fields ...string) *answer {
	c.t.Helper()
	c.send(request(method, target, body, fields...))
	return c.read(method)
}

func (c *client) get(target string, fields ...string) *answer {
	c.t.Helper()
	return c.do("GET", target, "", fields...)
}

func (c *client) post(target, body string, fields ...string) *answer {
	c.t.Helper()
	return c.do("POST", target, body, fields...)
}

// get sends a GET on a connection of its own.
func (ab *adbuffer) get(target string, fields ...string) *answer {
	ab.t.Helper()
	c := ab.dial()
	defer c.close()
	return c.get(target, fields...)
}

// post sends a POST on a connection of its own.
func (ab *adbuffer) post(target, body string, fields ...string) *answer {
	ab.t.Helper()
	c := ab.dial()
	defer c.close()
	return c.post(target, body, fields...)
}

// answer is an answer as it came.
type answer struct {
	t      testing.TB
	status int
	fields []field
	body   string
	took   time.Duration // from when read was called
}

type field struct{ name, value string }

// read reads the answer to a request with this method.
func (c *client) read(method string) *answer {
	c.t.Helper()
	a, err := c.tryRead(method)
	if err != nil {
		c.t.Fatalf("reading the answer: %v", err)
	}
	return a
}

// tryRead reads an answer strictly: CRLF, one Content-Length where there is a
// body, and nothing else that frames it.
func (c *client) tryRead(method string) (*answer, error) {
	began := time.Now()
	a := &answer{t: c.t}
	line, err := c.line()
	if err != nil {
		return nil, err
	}
	version, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(rest, " ")
	if a.status, err = strconv.Atoi(code); err != nil || version != "HTTP/1.1" || len(code) != 3 {
		return nil, fmt.Errorf("status line %q", line)
	}
	length := -1
	for {
		if line, err = c.line(); err != nil {
			return nil, err
		}
		if line == "" {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) != name {
			return nil, fmt.Errorf("field line %q", line)
		}
		value = strings.TrimSpace(value)
		a.fields = append(a.fields, field{name, value})
		switch strings.ToLower(name) {
		case "content-length":
			if length >= 0 {
				return nil, errors.New("two Content-Length")
			}
			if length, err = strconv.Atoi(value); err != nil {
				return nil, err
			}
		case "transfer-encoding":
			return nil, fmt.Errorf("framed by %q", line)
		}
	}
	if method == "HEAD" || a.status < 200 || a.status == 204 || a.status == 304 {
		a.took = time.Since(began)
		return a, nil
	}
	if length < 0 {
		return nil, fmt.Errorf("a %d without Content-Length", a.status)
	}
	body := make([]byte, length)
	_, err = io.ReadFull(c.r, body)
	a.body, a.took = string(body), time.Since(began)
	return a, err
}

func (c *client) line() (string, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	text, ok := strings.CutSuffix(line, "\r\n")
	if !ok {
		return "", fmt.Errorf("line %q ends without CRLF", line)
	}
	return text, nil
}

// wantClosed checks that adbuffer closes the connection, and sends nothing more.
func (c *client) wantClosed() {
	c.t.Helper()
	rest, err := io.ReadAll(c.r)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		c.t.Error("the connection was not closed")
	}
	if len(rest) > 0 {
		c.t.Errorf("more came before the connection was closed: %q", rest)
	}
}

// header returns the value of the field name, in any case; empty where there is none.
func (a *answer) header(name string) string {
	for _, f := range a.fields {
		if strings.EqualFold(f.name, name) {
			return f.value
		}
	}
	return ""
}

// wantStatus checks the status.
func (a *answer) wantStatus(what string, status int) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Errorf("%s: status %d, want %d: %v %s", what, a.status, status, a.fields, tail(a.body, 400))
	}
	return a
}

// wantSource checks who answered: "ssp/openx", "proxy/deadline".
func (a *answer) wantSource(source string) *answer {
	a.t.Helper()
	if got := a.header("X-Adbuffer-Source"); got != source {
		a.t.Errorf("X-Adbuffer-Source %q, want %q: %d %s", got, source, a.status, tail(a.body, 400))
	}
	return a
}

// wantFill checks that the SSP answered 200.
func (a *answer) wantFill(ssp string) *answer {
	a.t.Helper()
	return a.wantStatus("answer of "+ssp, 200).wantSource("ssp/" + ssp)
}

// ownError is the JSON of our own errors.
type ownError struct {
	Error  string `json:"error"`
	SSP    string `json:"ssp"`
	Detail string `json:"detail"`
}

// ownErrorOf reads the body of one of our own errors.
func ownErrorOf(a *answer) (e ownError) {
	a.t.Helper()
	if ct := a.header("Content-Type"); ct != "application/json" {
		a.t.Errorf("Content-Type %q, want application/json", ct)
	}
	if err := json.Unmarshal([]byte(a.body), &e); err != nil {
		a.t.Errorf("the body is no JSON: %v: %q", err, a.body)
	}
	return e
}
