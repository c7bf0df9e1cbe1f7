package rig

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"adbuffer/loadtest/internal/load"
)

// HoldOrder says which connections to keep idle, each of which first carries a request.
type HoldOrder struct {
	Addr        string
	Connections int
	TLS, HTTP2  bool
	Path        string // of the request over HTTP/2
	Request     []byte // over HTTP/1
}

// holdReply says how many connections are held.
type holdReply struct {
	Open  int    `json:"open"`
	Error string `json:"error"` // of the first that failed
}

// hold opens connections, gets one answer on each, and keeps them until in ends.
func hold(line string, answer *json.Encoder, in *bufio.Reader) error {
	var o HoldOrder
	if err := json.Unmarshal([]byte(line), &o); err != nil {
		return err
	}
	var mu sync.Mutex
	var conns []io.Closer
	var result holdReply
	var wait sync.WaitGroup
	slots := make(chan struct{}, 64) // below what listeners queue
	for range o.Connections {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			c, err := holdOne(o)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				conns = append(conns, c)
			} else if result.Error == "" {
				result.Error = err.Error()
			}
		})
	}
	wait.Wait()
	result.Open = len(conns)
	if err := answer.Encode(result); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, in)
	for _, c := range conns {
		c.Close()
	}
	return nil
}

func holdOne(o HoldOrder) (io.Closer, error) {
	c, err := dialHold(o)
	if err != nil {
		return nil, err
	}
	if o.HTTP2 {
		return holdHTTP2(c, o)
	}
	if _, err := c.Write(o.Request); err != nil {
		c.Close()
		return nil, err
	}
	var p load.Parser
	var kept []byte
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if err != nil {
			c.Close()
			return nil, err
		}
		kept = append(kept, buf[:n]...)
		used, done, err := p.Next(kept)
		if err != nil {
			c.Close()
			return nil, err
		}
		if kept = kept[used:]; done {
			return c, nil
		}
	}
}

func dialHold(o HoldOrder) (net.Conn, error) {
	d := &net.Dialer{Timeout: 5 * time.Second}
	c, err := d.Dial("tcp", o.Addr)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if !o.TLS {
		return c, nil
	}
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}
	if o.HTTP2 {
		config.NextProtos = []string{"h2"}
	}
	return tls.Client(c, config), nil
}

func holdHTTP2(c net.Conn, o HoldOrder) (io.Closer, error) {
	conn, err := (&http2.Transport{}).NewClientConn(c)
	if err != nil {
		c.Close()
		return nil, err
	}
	req, err := http.NewRequest(http.MethodGet, "https://"+o.Addr+o.Path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := conn.RoundTrip(req)
	if err != nil {
		conn.Close()
		return nil, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	_ = c.SetDeadline(time.Time{})
	return conn, err
}

// Hold opens idle connections in a process of their own, which closes them when it stops.
func (r *Rig) Hold(o HoldOrder, cores string) (*Process, error) {
	c, err := r.spawn("holder", "holder", cores, o)
	if err != nil {
		return nil, err
	}
	var a holdReply
	if err := c.readWithin(&a, childTimeout+time.Duration(o.Connections)*5*time.Millisecond); err != nil {
		return nil, err
	}
	if a.Open < o.Connections {
		c.Stop()
		return nil, &HoldError{Open: a.Open, Want: o.Connections, Reason: a.Error}
	}
	return c.Process, nil
}

// HoldError says that not all idle connections could be had.
type HoldError struct {
	Open, Want int
	Reason     string
}

func (e *HoldError) Error() string {
	return fmt.Sprintf("%d of %d idle connections could be opened: %s", e.Open, e.Want, e.Reason)
}
