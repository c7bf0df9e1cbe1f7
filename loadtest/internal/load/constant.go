package load

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Constant answers GET and POST on HTTP/1.1 connections that it keeps open until
// a request says Connection: close.
type Constant struct {
	answer   []byte
	file     *os.File // of the listener
	listener int      // file's descriptor; File.Fd would make it blocking again
	addr     string
	poller   *poller
	conns    map[int32]*constantConn
	buf      []byte
	out      []byte
	stop     [2]int // a socket pair whose end stops the loop
	stopped  sync.WaitGroup
	accepted atomic.Uint64
	served   atomic.Uint64
}

type constantConn struct {
	fd  int
	in  []byte // a request that is not whole yet
	out []byte // what the socket did not take
}

// The keys of the sockets that are no connections.
const (
	keyListener = -1
	keyStop     = -2
)

// constantMaxRequest bounds a request, body included.
const constantMaxRequest = 1 << 20

// ConstantBody returns the JSON body of size bytes, at least 4, that answers carry.
func ConstantBody(size int) []byte {
	b := bytes.Repeat([]byte("x"), max(size, 4))
	copy(b, `{"`)
	copy(b[len(b)-2:], `"}`)
	return b
}

// StartConstant listens on addr and answers with status 200 and a JSON body.
func StartConstant(addr string, body []byte) (*Constant, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer ln.Close() // file is the same socket
	file, err := ln.(*net.TCPListener).File()
	if err != nil {
		return nil, err
	}
	s := &Constant{addr: ln.Addr().String(), file: file, conns: map[int32]*constantConn{}, buf: make([]byte, 256<<10)}
	s.answer = append([]byte("HTTP/1.1 200 OK\r\nServer: constant\r\nContent-Type: application/json\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"), body...)
	if err := s.open(); err != nil {
		file.Close()
		return nil, err
	}
	s.stopped.Go(s.loop)
	return s, nil
}

func (s *Constant) open() (err error) {
	if s.poller, err = newPoller(512); err != nil {
		return err
	}
	s.listener = int(s.file.Fd())
	if err := unix.SetNonblock(s.listener, true); err != nil {
		return err
	}
	if s.stop, err = socketPair(); err != nil {
		return err
	}
	return errors.Join(s.poller.AddListener(s.listener, keyListener), s.poller.AddListener(s.stop[0], keyStop))
}

// Addr returns host:port.
func (s *Constant) Addr() string { return s.addr }

// Connections returns how many connections were accepted.
func (s *Constant) Connections() uint64 { return s.accepted.Load() }

// Requests returns how many requests were answered.
func (s *Constant) Requests() uint64 { return s.served.Load() }

// Close cuts all connections and returns when the loop has ended.
func (s *Constant) Close() {
	_ = unix.Close(s.stop[1])
	s.stopped.Wait()
	for _, c := range s.conns {
		_ = unix.Close(c.fd)
	}
	s.poller.Close()
	s.file.Close()
	_ = unix.Close(s.stop[0])
}

func (s *Constant) loop() {
	runtime.LockOSThread()
	for {
		events, err := s.poller.Wait(-1)
		if err != nil {
			panic(fmt.Sprintf("BUG: %v", err))
		}
		for _, e := range events {
			switch e.Key {
			case keyStop:
				return
			case keyListener:
				s.accept()
			default:
				c := s.conns[e.Key]
				if c == nil {
					continue // closed by an earlier event
				}
				if e.Writable && len(c.out) > 0 {
					s.write(c, nil)
				}
				if e.Readable {
					s.read(c, e.HungUp)
				}
			}
		}
	}
}

func (s *Constant) accept() {
	for {
		fd, err := acceptSocket(s.listener)
		if err != nil {
			return // none left, or out of descriptors: the peer waits
		}
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		c := &constantConn{fd: fd}
		s.conns[int32(fd)] = c
		s.accepted.Add(1)
		if s.poller.Add(fd, int32(fd)) != nil {
			s.close(c)
		}
	}
}

func (s *Constant) close(c *constantConn) {
	delete(s.conns, int32(c.fd))
	_ = unix.Close(c.fd)
	c.fd = -1
}

func (s *Constant) read(c *constantConn, hungUp bool) {
	for c.fd >= 0 {
		n, err := unix.Read(c.fd, s.buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return
		case err != nil || n == 0:
			s.close(c)
			return
		}
		s.serve(c, s.buf[:n])
		if n < len(s.buf) && !hungUp {
			return
		}
	}
}

// sendDue answers the requests in b, which follows what c keeps.
func (s *Constant) serve(c *constantConn, b []byte) {
	if len(c.in) > 0 {
		c.in = append(c.in, b...)
		b = c.in
	}
	s.out = s.out[:0]
	bye := false
	for len(b) > 0 && !bye {
		n, last := constantRequest(b)
		if n == 0 {
			break
		}
		bye = last
		b = b[n:]
		s.out = append(s.out, s.answer...)
		s.served.Add(1)
	}
	if len(b) > constantMaxRequest {
		bye = true
	}
	c.in = append(c.in[:0], b...)
	if len(s.out) > 0 {
		s.write(c, s.out)
	}
	if bye && c.fd >= 0 {
		s.close(c)
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

// write sends b behind what is still to be sent on c.
func (s *Constant) write(c *constantConn, b []byte) {
	if len(c.out) > 0 {
		c.out = append(c.out, b...)
		b = c.out
	}
	for len(b) > 0 {
		n, err := unix.Write(c.fd, b)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			s.close(c)
			return
		}
		b = b[n:]
	}
	c.out = append(c.out[:0], b...)
}
