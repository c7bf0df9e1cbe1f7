package cpushare

import (
	"bytes"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// stopped is a socket that keeps what was written, and has no bytes to read.
type stopped struct {
	net.Conn
	bytes.Buffer
}

func (s *stopped) Write(b []byte) (int, error)      { return s.Buffer.Write(b) }
func (s *stopped) Read([]byte) (int, error)         { return 0, io.EOF }
func (s *stopped) Close() error                     { return nil }
func (s *stopped) SetDeadline(time.Time) error      { return nil }
func (s *stopped) SetWriteDeadline(time.Time) error { return nil }

// helloOf returns the record of the ClientHello of a config.
func helloOf(c *tls.Config) []byte {
	s := new(stopped)
	c.InsecureSkipVerify = true
	tls.Client(s, c).Handshake()
	hello := s.Bytes()
	return hello[:recordHeader+int(hello[3])<<8+int(hello[4])] // without the alert
}

// isCostly scans hello, which arrives in pieces of random length, and reports whether it is costly.
func isCostly(t *testing.T, hello []byte) bool {
	t.Helper()
	var whole records
	testsupport.True(t, whole.add(hello), "no record ends with a ClientHello")
	for range 20 {
		var r records
		for rest := hello; len(rest) > 0; {
			n := 1 + rand.IntN(min(len(rest), 1+rand.IntN(300)))
			complete := r.add(rest[:n])
			rest = rest[n:]
			testsupport.True(t, complete == (len(rest) == 0), "with %d bytes missing, a record has ended: %v", len(rest), complete)
		}
		testsupport.True(t, r.hello == whole.hello, "in pieces, the scan ends with %+v, want %+v", r.hello, whole.hello)
	}
	return whole.hello.costly
}

func TestHellosThatAskForALongComputationAreKnown(t *testing.T) {
	for _, c := range []struct {
		name   string
		config *tls.Config
		costly bool
	}{
		{"all groups", &tls.Config{}, false},
		{"X25519", &tls.Config{CurvePreferences: []tls.CurveID{tls.X25519}}, false},
		{"P-256", &tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP256}}, false},
		{"P-384", &tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP384}}, true},
		{"P-521", &tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP521}}, true},
		{"P-384 with ML-KEM", &tls.Config{CurvePreferences: []tls.CurveID{tls.SecP384r1MLKEM1024}}, true},
		{"TLS 1.2 with all groups", &tls.Config{MaxVersion: tls.VersionTLS12}, false},
		{"TLS 1.2 with P-521", &tls.Config{MaxVersion: tls.VersionTLS12, CurvePreferences: []tls.CurveID{tls.CurveP521}}, true},
	} {
		got := isCostly(t, helloOf(c.config))
		testsupport.Equal(t, got, c.costly, "%[2]s: costly is %[1]v", c.name)
	}
}

// No handshake with two groups uses a costly one without a scan that says so.
func TestGroupsAreChosenAsCryptoTLSChooses(t *testing.T) {
	server := &tls.Config{Certificates: []tls.Certificate{testsupport.Certificate("a")}}
	for i, one := range knownGroups {
		for _, other := range knownGroups[i:] { // crypto/tls ignores the order of the preferences
			near, far := testsupport.ConnPair(t, "tcp")
			scanned := &scannedConn{Conn: far}
			accepted := tls.Server(scanned, server)
			ended := make(chan error, 1)
			go func() {
				client := tls.Client(near, &tls.Config{InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{one, other}})
				ended <- client.Handshake()
			}()
			testsupport.NoError(t, accepted.Handshake())
			testsupport.NoError(t, <-ended)
			chosen := accepted.ConnectionState().CurveID
			testsupport.True(t, scanned.hello.costly || setOf(int(chosen))&costlyGroups == 0, "with %v and %v the handshake uses %v, and is cheap by the scan", one, other, chosen)
			near.Close()
			far.Close()
		}
	}
}

type scannedConn struct {
	net.Conn
	records
}

func (c *scannedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.add(b[:n])
	return n, err
}

func FuzzRecords(f *testing.F) {
	for _, c := range []*tls.Config{{}, {MaxVersion: tls.VersionTLS12}, {CurvePreferences: []tls.CurveID{tls.CurveP521}}} {
		hello := helloOf(c)
		f.Add(hello, uint(1))
		f.Add(bytes.Repeat(hello, 2), uint(100))
	}
	f.Fuzz(func(t *testing.T, b []byte, cut uint) {
		var whole, parts records
		all := whole.add(b)
		n := int(cut % uint(len(b)+1))
		some := parts.add(b[:n])
		if rest := parts.add(b[n:]); all != (some || rest) || whole != parts {
			t.Errorf("cut after %d bytes: %v %+v, want %v %+v", n, some || rest, parts, all, whole)
		}
	})
}
