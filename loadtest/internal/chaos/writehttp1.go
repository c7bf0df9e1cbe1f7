package chaos

import (
	"bytes"
	"math/rand/v2"
	"net"
	"time"
)

// writing is the text of requests while a client sends it, at once or in pieces.
type writing struct {
	text []byte
	end  time.Time     // when the last write succeeded or failed; valid once done is closed
	done chan struct{} // closed after the last write
}

func newWriting(asks []*request, http10 bool) *writing {
	return &writing{text: textOf(asks, http10), done: make(chan struct{})}
}

// textOf returns the concatenated text of requests in HTTP/1.
func textOf(asks []*request, http10 bool) (text []byte) {
	for _, a := range asks {
		text = append(text, a.http1(http10)...)
	}
	return text
}

// wholeAt returns when the writing ended, even by an error, or the current time if it has not ended: a response that
// was read before then counts as one that took no time.
func (w *writing) wholeAt() time.Time {
	select {
	case <-w.done:
		return w.end
	default:
		return time.Now()
	}
}

// write writes the text with the pieces and pauses of the client's kind. It drops errors, since
// reading the response fails too.
func (w *writing) write(c net.Conn, m clientKind, rnd *rand.Rand) {
	defer close(w.done)
	_ = c.SetWriteDeadline(time.Now().Add(30 * time.Second))
	rest := w.text
	for pieces := max(1, m.pieces); len(rest) > 0; pieces-- {
		n := len(rest)
		if pieces > 1 && n > 1 {
			n = cut(rest, pieces, rnd)
		}
		_, err := c.Write(rest[:n])
		w.end = time.Now()
		if err != nil {
			return
		}
		rest = rest[n:]
		if m.pause > 0 && len(rest) > 0 {
			time.Sleep(time.Duration(rnd.Int64N(int64(m.pause))))
		}
	}
}

// cut chooses the length of the next piece at random. A piece often ends inside the empty line after a header.
func cut(rest []byte, pieces int, rnd *rand.Rand) int {
	if i := bytes.Index(rest, []byte("\r\n\r\n")); i > 0 && i+3 < len(rest) && rnd.IntN(3) == 0 {
		return i + 1 + rnd.IntN(3)
	}
	return 1 + rnd.IntN(min(len(rest)-1, max(1, 2*len(rest)/pieces)))
}
