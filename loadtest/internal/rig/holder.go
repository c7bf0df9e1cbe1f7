package rig

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"adbuffer/loadtest/internal/load"
)

// holdOrder tells a holder which connections to keep idle.
type holdOrder struct {
	Addr        string `json:"addr"`
	Connections int    `json:"connections"`
	Request     []byte `json:"request"` // sent once on each, as clients do before they idle
}

// holdReply says how many connections are held.
type holdReply struct {
	Open  int    `json:"open"`
	Error string `json:"error"` // of the first that failed
}

// hold opens connections, gets one answer on each, and keeps them until in ends.
func hold(line string, answer *json.Encoder, in *bufio.Reader) error {
	var o holdOrder
	if err := json.Unmarshal([]byte(line), &o); err != nil {
		return err
	}
	var mu sync.Mutex
	var conns []net.Conn
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

func holdOne(o holdOrder) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", o.Addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
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

// Held is idle connections in a process of their own.
type Held struct {
	Open  int
	child *childProcess
}

// Hold opens idle connections to addr, each of which has carried request once.
func (r *Rig) Hold(_ context.Context, addr string, connections int, request []byte, cores string) (*Held, error) {
	c, err := r.spawn("holder", "holder", cores, holdOrder{Addr: addr, Connections: connections, Request: request})
	if err != nil {
		return nil, err
	}
	var a holdReply
	if err := c.read(&a); err != nil {
		return nil, err
	}
	if a.Open < connections {
		c.Stop()
		return nil, &HoldError{Open: a.Open, Want: connections, Reason: a.Error}
	}
	return &Held{Open: a.Open, child: c}, nil
}

// Release closes the connections.
func (h *Held) Release() { h.child.Stop() }

// HoldError says that not all idle connections could be had.
type HoldError struct {
	Open, Want int
	Reason     string
}

func (e *HoldError) Error() string {
	return fmt.Sprintf("%d of %d idle connections could be opened: %s", e.Open, e.Want, e.Reason)
}
