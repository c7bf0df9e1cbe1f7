package load

import (
	"bytes"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
)

// Constant responds to GET and POST with the same response, on HTTP/1.1 connections that it
// keeps open until a request says Connection: close. It parses no more than it must, since it
// shares the generator's core.
type Constant struct {
	listener net.Listener
	answer   []byte
	running  sync.WaitGroup
	accepted atomic.Uint64
	served   atomic.Uint64

	mu    sync.Mutex // guards the field below
	conns map[net.Conn]struct{}
}

// constantMaxRequest bounds a request, body included.
const constantMaxRequest = 1 << 20

// ConstantBody returns the JSON body of size bytes, at least 4, that responses carry.
func ConstantBody(size int) []byte {
	b := bytes.Repeat([]byte("x"), max(size, 4))
	copy(b, `{"`)
	copy(b[len(b)-2:], `"}`)
	return b
}

// StartConstant listens on addr and responds with status 200 and a JSON body.
func StartConstant(addr string, body []byte) (*Constant, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &Constant{listener: ln, conns: map[net.Conn]struct{}{}}
	s.answer = append([]byte("HTTP/1.1 200 OK\r\nServer: constant\r\nContent-Type: application/json\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"), body...)
	s.running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.accepted.Add(1)
			s.mu.Lock()
			s.conns[c] = struct{}{}
			s.mu.Unlock()
			s.running.Go(func() { s.serve(c) })
		}
	})
	return s, nil
}

// Addr returns host:port.
func (s *Constant) Addr() string { return s.listener.Addr().String() }

// Connections returns how many connections were accepted.
func (s *Constant) Connections() uint64 { return s.accepted.Load() }

// Requests returns how many requests got a response.
func (s *Constant) Requests() uint64 { return s.served.Load() }

// Close cuts all connections and returns when all goroutines have ended.
func (s *Constant) Close() {
	s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// serve responds to the requests of a connection.
func (s *Constant) serve(c net.Conn) {
	defer func() {
		c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	in, out := make([]byte, 16<<10), []byte(nil)
	for have, last := 0, false; !last; {
		if have == len(in) {
			if have >= constantMaxRequest {
				return
			}
			in = append(in, make([]byte, have)...)
		}
		n, err := c.Read(in[have:])
		if err != nil {
			return
		}
		have, out = have+n, out[:0]
		rest := in[:have]
		for len(rest) > 0 && !last {
			if n, last = constantRequest(rest); n == 0 {
				break
			}
			rest, out = rest[n:], append(out, s.answer...)
			s.served.Add(1)
		}
		have = copy(in, rest)
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

// constantRequest returns the length of the request at the start of b, 0 if it is not
// whole, and whether it asks to close.
func constantRequest(b []byte) (n int, last bool) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return 0, false
	}
	head := b[:end+2]
	n = end + 4
	last = bytes.Contains(head, []byte("\r\nConnection: close\r\n")) || bytes.Contains(head, []byte("\r\nconnection: close\r\n"))
	if b[0] != 'P' {
		return n, last
	}
	for rest := head; ; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 || i+1 == len(rest) {
			break
		}
		rest = rest[i+1:]
		if len(rest) > 15 && bytes.EqualFold(rest[:15], []byte("content-length:")) {
			line, _, _ := bytes.Cut(rest[15:], []byte("\r"))
			length, err := strconv.Atoi(string(bytes.TrimSpace(line)))
			if err == nil && length > 0 {
				n += length
			}
		}
	}
	if n > len(b) {
		return 0, false
	}
	return n, last
}
