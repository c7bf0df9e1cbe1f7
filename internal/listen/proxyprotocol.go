package listen

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/pires/go-proxyproto"
)

// Proxied is a connection that starts with a PROXY header, which has not been
// read yet: Accept must not wait for it. What serves the connection calls
// ReadHeader on its own goroutine first, and goes on with NetConn.
type Proxied struct {
	net.Conn
	within time.Duration // from ReadHeader on, which must have read the header then
	counts *proxyCounts
}

// NetConn is the connection below. Once ReadHeader has returned nil, the next
// byte read from it is the client's first.
func (c *Proxied) NetConn() net.Conn { return c.Conn }

// ReadHeader reads the PROXY header, and no byte more. client is whose requests
// these are: the header's source, or the peer itself where the header names none
// (LOCAL, as in health checks, and UNKNOWN); zero for the peer of a unix socket.
// Where it fails, that has been counted, and the connection is closed, so that
// nobody takes what follows for a request.
//
// https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt
func (c *Proxied) ReadHeader() (client netip.Addr, err error) {
	defer func() {
		if err != nil {
			c.Conn.Close() //nolint:errcheck // it is refused either way
		}
	}()
	c.Conn.SetReadDeadline(time.Now().Add(c.within)) //nolint:errcheck // a closed socket fails the read
	header, err := readHeader(c.Conn)
	switch {
	case err == nil:
		c.counts.ok.Add(1)
	case errors.Is(err, io.EOF): // a look whether somebody listens
		return netip.Addr{}, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.counts.timeout.Add(1)
		return netip.Addr{}, fmt.Errorf("no PROXY header within server.read_timeout: %w", err)
	case errors.Is(err, proxyproto.ErrNoProxyProtocol):
		c.counts.missing.Add(1)
		return netip.Addr{}, errors.New("a peer of server.trusted_proxies sent no PROXY header, which server.proxy_protocol asks for")
	default:
		c.counts.malformed.Add(1)
		return netip.Addr{}, fmt.Errorf("PROXY header: %w", err)
	}
	c.Conn.SetReadDeadline(time.Time{}) //nolint:errcheck // as above
	if source, ok := header.SourceAddr.(*net.TCPAddr); ok && header.Command == proxyproto.PROXY {
		return source.AddrPort().Addr().Unmap(), nil
	}
	return addrOf(c.Conn.RemoteAddr()), nil
}

// addrOf is the address of a peer; zero for that of a unix socket.
func addrOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

const (
	maxV1Bytes = 107 // as the specification counts
	minV1Bytes = len("PROXY UNKNOWN\r\n")
	v2Fixed    = 16 // signature, version, family, length
)

// readHeader takes a header off r. It reads what the shortest one has, and then
// only what the header says that it has: what follows is not ours to buffer. A
// version 1 header is read byte by byte after that, which is forty short reads
// for a connection of many requests.
func readHeader(r io.Reader) (*proxyproto.Header, error) {
	buf := make([]byte, minV1Bytes, 128)
	if n, err := io.ReadFull(r, buf); err != nil {
		if n > 0 && !isPrefix(buf[:n]) {
			return nil, proxyproto.ErrNoProxyProtocol
		}
		return nil, err
	}
	var err error
	switch {
	case bytes.HasPrefix(buf, proxyproto.SIGV2):
		buf, err = readV2(r, buf)
	case bytes.HasPrefix(buf, proxyproto.SIGV1):
		buf, err = readV1(r, buf)
	default:
		return nil, proxyproto.ErrNoProxyProtocol
	}
	if err != nil {
		return nil, err
	}
	return proxyproto.Read(bufio.NewReaderSize(bytes.NewReader(buf), len(buf)))
}

// isPrefix reports whether b can become a header.
func isPrefix(b []byte) bool {
	for _, signature := range [][]byte{proxyproto.SIGV1, proxyproto.SIGV2} {
		n := min(len(b), len(signature))
		if bytes.Equal(b[:n], signature[:n]) {
			return true
		}
	}
	return false
}

func readV1(r io.Reader, buf []byte) ([]byte, error) {
	if i := bytes.IndexByte(buf, '\n'); i >= 0 && i < len(buf)-1 {
		return nil, proxyproto.ErrCantReadVersion1Header // shorter than the shortest
	}
	for buf[len(buf)-1] != '\n' {
		if len(buf) == maxV1Bytes {
			return nil, proxyproto.ErrVersion1HeaderTooLong
		}
		buf = append(buf, 0)
		if err := readRest(r, buf[len(buf)-1:]); err != nil {
			return nil, err
		}
	}
	return buf, nil
}

func readV2(r io.Reader, buf []byte) ([]byte, error) {
	buf = append(buf, 0)
	if err := readRest(r, buf[v2Fixed-1:]); err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint16(buf[v2Fixed-2:]))
	if length > int(proxyproto.MaxV2HeaderSize) {
		return nil, fmt.Errorf("it says to have %d bytes, and may have %d", length, proxyproto.MaxV2HeaderSize)
	}
	buf = append(buf, make([]byte, length)...)
	return buf, readRest(r, buf[v2Fixed:])
}

// readRest fills b; the header must not end here.
func readRest(r io.Reader, b []byte) error {
	_, err := io.ReadFull(r, b)
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
