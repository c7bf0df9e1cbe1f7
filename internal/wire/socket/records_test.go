package socket

import (
	"bytes"
	"crypto/tls"
	"io"
	mrand "math/rand/v2"
	"net"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// chunks returns its bytes in pieces with the given sizes.
type chunks struct {
	b     []byte
	sizes func() int
}

func (c *chunks) read(p []byte) (int, error) {
	if len(c.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.b[:min(len(c.b), max(1, c.sizes()))])
	c.b = c.b[n:]
	return n, nil
}

// record returns a TLS record with size bytes.
func record(size int, fill byte) []byte {
	return append([]byte{23, 3, 3, byte(size >> 8), byte(size)}, bytes.Repeat([]byte{fill}, size)...)
}

// ends returns the offsets in b where its records end, and whether the last record is complete.
func ends(b []byte) (at map[int]bool, whole bool) {
	at = map[int]bool{0: true}
	off := 0
	for off+recordHeader <= len(b) {
		off += recordHeader + int(b[off+3])<<8 + int(b[off+4])
		at[off] = true
	}
	return at, off == len(b)
}

// checkRecords reads input through records. The sizes of the pieces from the socket and of the
// buffers of TLS come from two sources. Every byte must come out, in order, and no read may go
// beyond the end of a record.
func checkRecords(t *testing.T, input []byte, fromSocket, toTLS func() int) {
	t.Helper()
	r := new(records)
	src := &chunks{b: input, sizes: fromSocket}
	at, whole := ends(input)
	off := 0
	room := make([]byte, 64<<10)
	for {
		p := room[:max(1, toTLS())]
		n, err := r.read(p, src.read)
		if err != nil {
			break
		}
		testsupport.MustTrue(t, n != 0, "a read returned no bytes")
		testsupport.MustTrue(t, bytes.Equal(p[:n], input[off:off+n]), "at %d: the bytes differ from the input", off)
		for i := off + 1; i < off+n; i++ {
			testsupport.MustTrue(t, !at[i], "a read from %d to %d goes beyond the end of a record at %d", off, off+n, i)
		}
		off += n
		testsupport.MustEqual(t, r.atRecordEnd(), (at[off] && len(src.b) == len(input)-off), "between %v at %d of %v, %d bytes read ahead", off, at, len(input)-off-len(src.b))
	}
	testsupport.MustEqual(t, off, len(input), "%d of %d bytes came out", len(input))
	testsupport.MustTrue(t, r.atRecordEnd() == whole && r.buf == nil, "at the end: between %v, want %v; buffer held: %v", r.atRecordEnd(), whole, r.buf != nil)
}

func TestNoReadGoesBeyondATLSRecord(t *testing.T) {
	testsupport.Long(t)
	for seed := range uint64(60) {
		rnd := mrand.New(mrand.NewPCG(seed, 2))
		var input []byte
		for range rnd.IntN(20) {
			size := rnd.IntN(40)
			switch rnd.IntN(8) {
			case 0:
				size = 0
			case 1:
				size = 16384 + 256
			}
			input = append(input, record(size, byte(rnd.Uint32()))...)
		}
		input = input[:len(input)-min(len(input), rnd.IntN(4))]
		sizes := []int{1, 3, 5, 7, 50, 1000, 64 << 10}
		pick := func() int { return sizes[rnd.IntN(len(sizes))] }
		checkRecords(t, input, pick, pick)
	}
}

func FuzzRecords(f *testing.F) {
	f.Add(append(record(3, 'a'), record(0, 'b')...), []byte{1, 200}, []byte{5, 1})
	f.Add([]byte{23, 3, 3, 255, 255, 1}, []byte{9}, []byte{2})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, []byte{3}, []byte{255})
	f.Fuzz(func(t *testing.T, input, fromSocket, toTLS []byte) {
		cycle := func(sizes []byte) func() int {
			i := -1
			return func() int {
				if len(sizes) == 0 {
					return 64 << 10
				}
				i++
				return int(sizes[i%len(sizes)])
			}
		}
		checkRecords(t, input, cycle(fromSocket), cycle(toTLS))
	})
}

// With TLS on top, Peek sees the bytes that TLS has not read. They are not in a buffer of TLS.
func TestPeekSeesWhatTLSHasNotRead(t *testing.T) {
	certificate := testsupport.Certificate()
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		c, peer := connect(t, "tcp")
		c.Records()
		client := tls.Client(c, &tls.Config{InsecureSkipVerify: true, MaxVersion: version})
		sealed := &holding{Conn: peer}
		server := tls.Server(sealed, &tls.Config{Certificates: []tls.Certificate{certificate}, SessionTicketsDisabled: true})
		done := make(chan error, 1)
		go func() { done <- server.Handshake() }()
		testsupport.NoError(t, client.Handshake())
		testsupport.NoError(t, <-done)
		testsupport.MustTrue(t, c.Peek() == Quiet && !c.ReadAhead() && !c.MidRecord(), "bytes are left after the handshake")
		server.Write([]byte("response"))
		server.Write([]byte("more"))
		server.Write([]byte("still more"))
		awaitState(t, c, Readable)
		b := make([]byte, 100)
		for _, want := range []string{"response", "more", "still more"} {
			testsupport.MustEqual(t, c.Peek(), Readable, "Peek %d before %q was read", want)
			wantRead(t, client, want)
		}
		testsupport.MustEqual(t, c.Peek(), Quiet, "Peek %d when all was read")

		// TLS stays usable after a nonblocking read, also in the middle of a record.
		sealed.hold = true
		server.Write([]byte("last"))
		c.SetNonblocking(true)
		for _, piece := range [][]byte{nil, sealed.held[:3], sealed.held[3:9]} {
			peer.Write(piece)
			if len(piece) > 0 {
				testsupport.Eventually(t, "the socket is readable", func() bool { return c.PeekSocket() == Readable })
			}
			_, err := client.Read(b)
			testsupport.MustTrue(t, WouldBlock(err), "Read: %v, want an error for which WouldBlock is true", err)
			testsupport.MustTrue(t, c.MidRecord() == (len(piece) > 0) && (c.Peek() == Readable) == (len(piece) > 0), "MidRecord %v, Peek %d behind %d bytes", c.MidRecord(), c.Peek(), len(piece))
		}
		c.SetNonblocking(false)
		peer.Write(sealed.held[9:])
		sealed.hold = false
		wantRead(t, client, "last")
		server.Close()
		awaitState(t, c, Readable) // the peer sends close_notify
		testsupport.MustEqual(t, readError(client), io.EOF, "Read: %v")
		awaitState(t, c, Ended)
	}
}

// holding keeps its written bytes while hold is true.
type holding struct {
	net.Conn
	hold bool
	held []byte
}

func (h *holding) Write(b []byte) (int, error) {
	if !h.hold {
		return h.Conn.Write(b)
	}
	h.held = append(h.held, b...)
	return len(b), nil
}
