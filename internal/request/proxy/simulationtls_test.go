package proxy_test

import (
	"crypto/tls"
	"os"
	"time"

	"adbuffer/internal/test/testsupport"
)

// recordOverhead is the size of a TLS 1.3 record without its text: header, content type and tag.
const recordOverhead = 5 + 1 + 16

// simTLSTime is a moment at which the server's certificate is valid; the bubble's own clock is too
// early.
var simTLSTime func() time.Time

// simTLS is a client's end of TLS. After the handshake it collects written records, and a read
// without bytes fails.
type simTLS struct {
	*simClient
	conn   *tls.Conn
	shaken bool
	in     string // received and not read yet
	out    []byte
}

func (c *simClient) shakeHands() {
	c.t.Helper()
	c.tls = &simTLS{simClient: c}
	config := clientTLS()
	config.MinVersion, config.Time = tls.VersionTLS13, simTLSTime
	c.tls.conn = tls.Client(c.tls, config)
	testsupport.NoError(c.t, c.tls.conn.Handshake())
	c.tls.shaken = true
	c.tls.open() // session tickets
}

// seal returns the record of text.
func (s *simTLS) seal(text string) string {
	s.t.Helper()
	if text == "" {
		return ""
	}
	if _, err := s.conn.Write([]byte(text)); err != nil {
		s.t.Fatal(err)
	}
	defer func() { s.out = nil }()
	return string(s.out)
}

// open returns the text of the received records.
func (s *simTLS) open() (text string) {
	b := make([]byte, 16<<10)
	for {
		n, err := s.conn.Read(b)
		if text += string(b[:n]); err != nil {
			return text
		}
	}
}

// Write implements net.Conn.
func (s *simTLS) Write(b []byte) (int, error) {
	if !s.shaken {
		s.Arrive(string(b))
		return len(b), nil
	}
	s.out = append(s.out, b...)
	return len(b), nil
}

// Read implements net.Conn.
func (s *simTLS) Read(b []byte) (int, error) {
	for s.in += s.Take(); s.in == "" && !s.shaken; s.in += s.Take() {
		time.Sleep(tick)
	}
	if s.in == "" {
		return 0, os.ErrDeadlineExceeded
	}
	n := copy(b, s.in)
	s.in = s.in[n:]
	return n, nil
}
