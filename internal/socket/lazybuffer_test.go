package socket

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// tcpPair returns both ends of a loopback connection.
func tcpPair(t *testing.T) (near *Conn, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	near = New(c)
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

func TestLazyBufferHandsOverEveryByteInOrder(t *testing.T) {
	near, far := tcpPair(t)
	pool := &sync.Pool{New: func() any { b := make([]byte, 512); return &b }}
	near.LazyBuffer(pool)
	rng := rand.New(rand.NewPCG(1, 2))
	want := make([]byte, 100_000)
	for i := range want {
		want[i] = byte(rng.Uint32())
	}
	go func() {
		for rest := want; len(rest) > 0; {
			n := min(len(rest), 1+int(want[len(rest)%len(want)])*3)
			far.Write(rest[:n])
			rest = rest[n:]
		}
		far.(*net.TCPConn).CloseWrite()
	}()
	var got []byte
	for {
		p := make([]byte, 1)
		if rng.IntN(3) > 0 {
			p = make([]byte, 1+rng.IntN(700))
		}
		n, err := near.Read(p)
		got = append(got, p[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%d bytes came in another order or number than the %d that were sent", len(got), len(want))
	}
	if near.lazy.buf != nil {
		t.Error("a buffer is held although all was handed over")
	}
}
