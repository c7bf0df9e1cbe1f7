package socket

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"reflect"
	"testing"
	"unsafe"

	"adbuffer/internal/test/testsupport"
)

// This test fails with a new version of Go whose tls.Conn has other fields. Then idle TLS clients
// hold more memory, and everything else works.
func TestFreeTLSGivesUpEmptyBuffersAlone(t *testing.T) {
	testsupport.MustTrue(t, tlsLayout.usable, "crypto/tls keeps its buffers elsewhere in this version of Go")
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	cert := testsupport.Certificate("a.test")
	server := tls.Server(near, &tls.Config{Certificates: []tls.Certificate{cert}})
	client := tls.Client(far, &tls.Config{RootCAs: testsupport.Roots(cert), ServerName: "a.test"})
	sent := make(chan error, 1)
	go func() { sent <- client.Handshake() }()
	buf := make([]byte, 3)
	held := func() int { return (*bytes.Buffer)(unsafe.Add(unsafe.Pointer(server), tlsLayout.rawInput)).Cap() }
	testsupport.NoError(t, server.Handshake())
	testsupport.NoError(t, <-sent)
	for i, text := range []string{"abc", "defghi"} {
		go func() {
			_, err := io.WriteString(client, text)
			sent <- err
		}()
		for n := range len(text) / len(buf) {
			_, err := io.ReadFull(server, buf)
			testsupport.MustTrue(t, err == nil && string(buf) == text[3*n:3*n+3], "%q, %v, want %q", buf, err, text[3*n:3*n+3])
			more := 3*n+3 < len(text) // more bytes of the record follow
			if FreeTLS(server); held() > 0 != more {
				t.Errorf("write %d: %d bytes are held, more of the record: %v", i, held(), more)
			}
		}
		testsupport.NoError(t, <-sent)
	}
}

func TestFreeTLSIsNotUsableWhereFieldsDiffer(t *testing.T) {
	buffer, reader := reflect.TypeFor[bytes.Buffer](), reflect.TypeFor[bytes.Reader]()
	fields := func(rawInput, hand, input reflect.Type) (all []reflect.StructField) {
		for name, of := range map[string]reflect.Type{"rawInput": rawInput, "hand": hand, "input": input} {
			all = append(all, reflect.StructField{Name: name, PkgPath: "crypto/tls", Type: of})
		}
		return all
	}
	testsupport.True(t, findTLSBuffers(reflect.StructOf(fields(buffer, buffer, reader))).usable, "the fields are not found")
	for _, other := range [][]reflect.StructField{
		fields(reader, buffer, reader), fields(buffer, reader, reader), fields(buffer, buffer, buffer), fields(buffer, buffer, reader)[:2],
	} {
		testsupport.True(t, !findTLSBuffers(reflect.StructOf(other)).usable, "%v: a field is missing or has another type", other)
	}
}
