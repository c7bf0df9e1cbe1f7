package chaos

import (
	"bytes"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"
)

// writing is the text of requests while a client sends it, at once or in pieces.
type writing struct {
	text  []byte
	ends  []int          // where each request ends in text
	whole []atomic.Int64 // when all of each request was written, in nanoseconds since 1970; 0 if not yet
	done  chan struct{}  // closed after the last write, or after one that failed
}

func newWriting(asks []*request, http10 bool) *writing {
	w := &writing{whole: make([]atomic.Int64, len(asks)), done: make(chan struct{})}
	for _, a := range asks {
		w.text = append(w.text, a.http1(http10)...)
		w.ends = append(w.ends, len(w.text))
	}
	return w
}

// wholeAt returns when all of a request was written. It returns the current time if that is not done.
func (w *writing) wholeAt(i int) time.Time {
	if at := w.whole[i].Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Now()
}

// write writes the text with the pieces and pauses of the client's kind. It drops errors, since
// reading the response fails too.
func (w *writing) write(c net.Conn, m clientKind, rnd *rand.Rand) {
	defer close(w.done)
	_ = c.SetWriteDeadline(time.Now().Add(30 * time.Second))
	at, next := 0, 0
	for pieces := max(1, m.pieces); at < len(w.text); pieces-- {
		n := len(w.text) - at
		if pieces > 1 && n > 1 {
			n = cut(w.text[at:], pieces, rnd)
		}
		if _, err := c.Write(w.text[at : at+n]); err != nil {
			return
		}
		at += n
		for ; next < len(w.ends) && w.ends[next] <= at; next++ {
			w.whole[next].Store(time.Now().UnixNano())
		}
		if m.pause > 0 && at < len(w.text) {
			time.Sleep(time.Duration(rnd.Int64N(int64(m.pause))))
		}
	}
}

// cut chooses the length of the next piece at random. A piece often ends inside the empty line
// behind a header.
func cut(rest []byte, pieces int, rnd *rand.Rand) int {
	if i := bytes.Index(rest, []byte("\r\n\r\n")); i > 0 && i+3 < len(rest) && rnd.IntN(3) == 0 {
		return i + 1 + rnd.IntN(3)
	}
	return 1 + rnd.IntN(min(len(rest)-1, max(1, 2*len(rest)/pieces)))
}
