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
	"syscall"
	"time"

	"github.com/pires/go-proxyproto"

	"adbuffer/internal/wire/socket"
)

// Proxied is a connection that starts with a PROXY header. Accept does not wait for the
// header: the connection's goroutine first calls ReadHeader, and then uses NetConn.
type Proxied struct {
	net.Conn
	timeout time.Duration // of ReadHeader
	refused *proxyErrors
}

// NetConn is the connection below. After ReadHeader has returned nil, the next byte read from it is
// the client's first byte.
func (c *Proxied) NetConn() net.Conn { return c.Conn }

// ReadHeader reads the PROXY header, and no byte more. client is the source address in the header. If the header has
// none (LOCAL, as in health checks, UNKNOWN and UNSPEC), client is the peer's address, which is the zero Addr for a
// Unix socket. If ReadHeader fails, it counts the failure and closes the connection, so that the next bytes are not
// read as a request.
//
// https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt
func (c *Proxied) ReadHeader() (client netip.Addr, err error) {
	defer func() {
		if err != nil {
			c.Conn.Close()
		}
	}()
	c.Conn.SetReadDeadline(time.Now().Add(c.timeout))
	header, err := readHeader(c.Conn)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET): // most likely a check whether the port is open
		return netip.Addr{}, err
	case errors.Is(err, net.ErrClosed): // a drain has closed the connection
		return netip.Addr{}, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.refused.timeout.Add(1)
		return netip.Addr{}, fmt.Errorf("no PROXY header within server.read_timeout: %w", err)
	case errors.Is(err, proxyproto.ErrNoProxyProtocol):
		c.refused.missing.Add(1)
		return netip.Addr{}, errors.New("a peer of server.trusted_proxies sent no PROXY header, which server.proxy_protocol requires")
	default:
		c.refused.malformed.Add(1)
		return netip.Addr{}, fmt.Errorf("PROXY header: %w", err)
	}
	c.Conn.SetReadDeadline(time.Time{})
	if source, ok := header.SourceAddr.(*net.TCPAddr); ok && header.Command == proxyproto.PROXY {
		return source.AddrPort().Addr().Unmap(), nil
	}
	return socket.PeerOf(c.Conn), nil
}

const (
	maxV1Bytes = 107 // as the specification counts
	minV1Bytes = len("PROXY UNKNOWN\r\n")
	v2Command  = 12 // offset of version and command
	v2Fixed    = 16 // signature, version and command, family, length
)

// readHeader reads a header from r, and no byte after it. It first reads as many bytes as the shortest header has.
// Then it reads the rest of a version 2 header by its length, and of a version 1 header byte by byte: about forty
// short reads, once for each connection.
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

// isPrefix reports whether b can be the beginning of a header.
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
		return nil, proxyproto.ErrCantReadVersion1Header // shorter than the shortest header
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
		return nil, fmt.Errorf("its length is %d bytes; the limit is %d", length, proxyproto.MaxV2HeaderSize)
	}
	buf = append(buf, make([]byte, length)...)
	if command := &buf[v2Command]; *command == byte(proxyproto.PROXY) && buf[v2Command+1] == byte(proxyproto.UNSPEC) {
		*command = byte(proxyproto.LOCAL) // the library refuses UNSPEC; as for LOCAL, the rest of the header is skipped and the peer's address is used
	}
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
