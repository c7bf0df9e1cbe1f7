package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// Client is one raw connection to adbuffer.
type Client struct {
	T      testing.TB
	Conn   net.Conn
	Reader *bufio.Reader
}

// Dial opens a connection, and closes it at the end of the test.
func (ab *Process) Dial() *Client {
	ab.T.Helper()
	c, err := ab.tryDial()
	testsupport.NoError(ab.T, err)
	ab.T.Cleanup(c.Close)
	return c
}

func (ab *Process) tryDial() (*Client, error) {
	c, err := net.DialTimeout(ab.Network, ab.TrafficAddr, testsupport.Patience)
	return &Client{T: ab.T, Conn: c, Reader: bufio.NewReader(c)}, err
}

func (c *Client) Close() { c.Conn.Close() }

// patient bounds the next write or read, not the life of the connection: a test may use it for
// longer than one wait.
func (c *Client) patient() {
	c.Conn.SetDeadline(time.Now().Add(testsupport.Patience))
}

// Send writes bytes as they are.
func (c *Client) Send(raw string) {
	c.T.Helper()
	c.patient()
	_, err := io.WriteString(c.Conn, raw)
	testsupport.NoError(c.T, err)
}

// Request is the text of a request; fields are lines without their CRLF. A body
// gets a Content-Length.
func Request(method, target, body string, fields ...string) string {
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

func (c *Client) Do(method, target, body string, fields ...string) *Response {
	c.T.Helper()
	c.Send(Request(method, target, body, fields...))
	return c.Read(method)
}

func (c *Client) Get(target string, fields ...string) *Response {
	c.T.Helper()
	return c.Do("GET", target, "", fields...)
}

func (c *Client) Post(target, body string, fields ...string) *Response {
	c.T.Helper()
	return c.Do("POST", target, body, fields...)
}

// Get sends a GET on a connection of its own.
func (ab *Process) Get(target string, fields ...string) *Response {
	ab.T.Helper()
	c := ab.Dial()
	defer c.Close()
	return c.Get(target, fields...)
}

// Post sends a POST on a connection of its own.
func (ab *Process) Post(target, body string, fields ...string) *Response {
	ab.T.Helper()
	c := ab.Dial()
	defer c.Close()
	return c.Post(target, body, fields...)
}

// Read reads the response to a request with this method.
func (c *Client) Read(method string) *Response {
	c.T.Helper()
	a, err := c.TryRead(method)
	testsupport.MustTrue(c.T, err == nil, "reading the response: %v", err)
	return a
}

// TryRead reads a response strictly: CRLF, one Content-Length if there is a body, and no other
// framing.
func (c *Client) TryRead(method string) (*Response, error) {
	c.patient()
	a := &Response{t: c.T}
	line, err := c.line()
	if err != nil {
		return nil, err
	}
	version, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(rest, " ")
	a.Status, err = strconv.Atoi(code)
	if err != nil || version != "HTTP/1.1" || len(code) != 3 {
		return nil, fmt.Errorf("status line %q", line)
	}
	var lengths []string
	for line, err = c.line(); line != ""; line, err = c.line() {
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) != name {
			return nil, fmt.Errorf("field line %q", line)
		}
		a.Fields = append(a.Fields, Field{name, strings.TrimSpace(value)})
		switch strings.ToLower(name) {
		case "content-length":
			lengths = append(lengths, strings.TrimSpace(value))
		case "transfer-encoding":
			return nil, fmt.Errorf("framed by %q", line)
		}
	}
	if err != nil {
		return nil, err
	}
	if len(lengths) > 1 {
		return nil, fmt.Errorf("the Content-Lengths %q", lengths)
	}
	if method == "HEAD" || a.Status < 200 || a.Status == 204 || a.Status == 304 {
		return a, nil
	}
	if len(lengths) == 0 {
		return nil, fmt.Errorf("a %d without Content-Length", a.Status)
	}
	length, err := strconv.Atoi(lengths[0])
	if err != nil {
		return nil, err
	}
	body := make([]byte, length)
	_, err = io.ReadFull(c.Reader, body)
	a.Body = string(body)
	return a, err
}

func (c *Client) line() (string, error) {
	line, err := c.Reader.ReadString('\n')
	if err != nil {
		return "", err
	}
	text, ok := strings.CutSuffix(line, "\r\n")
	if !ok {
		return "", fmt.Errorf("line %q ends without CRLF", line)
	}
	return text, nil
}

// WantClosed checks that adbuffer closes the connection, and sends no more bytes.
func (c *Client) WantClosed() {
	c.T.Helper()
	c.patient()
	rest, err := io.ReadAll(c.Reader)
	var timeout net.Error
	testsupport.True(c.T, !errors.As(err, &timeout) || !timeout.Timeout(), "the connection was not closed")
	testsupport.True(c.T, len(rest) == 0, "bytes arrived before the connection was closed: %q", rest)
}
