package http1

import (
	"bufio"
	"errors"
	"io"
	"time"

	"adbuffer/internal/upstream"
)

// answerReader reads one answer. It can be interrupted by a deadline at any
// byte and go on later: an abandoned answer is read to its end that way, and
// discarded, so that its connection can be used again.
type answerReader struct {
	maxHead int // bytes of a head; also the size of the bufio.Reader
	maxBody int

	toHEAD  bool
	discard bool // nobody wants the answer any more: keep nothing of it

	phase   phase
	head    head
	interim int // 1xx answers so far
	left    int // bytes of the body, or of the chunk, that are still to come
	size    int // bytes of the body so far
	trailer int // bytes of the trailer section so far
	waits   int // reads that had to wait for the network
}

type phase uint8

const (
	inHead phase = iota
	inFixed
	inChunkSize
	inChunk
	inChunkEnd
	inTrailer
	inUntilClose
	atEnd
)

// maxInterim is how many 1xx answers may precede the final one.
const maxInterim = 16

// start prepares a for the answer to a request with method m.
func (a *answerReader) start(m upstream.Method) {
	*a = answerReader{maxHead: a.maxHead, maxBody: a.maxBody, toHEAD: m == upstream.HEAD}
}

// began reports whether a byte of the answer has come, as far as a has seen.
func (a *answerReader) began(br *bufio.Reader) bool {
	return a.phase != inHead || a.interim > 0 || br.Buffered() > 0
}

// announcesEnd reports whether the answer's head has come, and says that the
// connection ends with this answer. RFC 9112, sections 6.3 and 9.6.
func (a *answerReader) announcesEnd() bool {
	return a.phase != inHead && (a.head.close || a.head.http10 || a.head.framing(a.toHEAD) == untilClose)
}

// read goes on reading until the answer is whole, or br fails. What it reads
// goes to ex, unless a discards; ex may be nil then.
func (a *answerReader) read(br *bufio.Reader, ex *upstream.Exchange) error {
	for {
		var err error
		switch a.phase {
		case inHead:
			err = a.readHead(br, ex)
		case inFixed, inChunk:
			err = a.readBody(br, ex)
		case inChunkSize:
			err = a.readChunkSize(br, ex)
		case inChunkEnd:
			err = a.readChunkEnd(br)
		case inTrailer:
			err = a.readTrailer(br)
		case inUntilClose:
			err = a.readUntilClose(br, ex)
		case atEnd:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (a *answerReader) readHead(br *bufio.Reader, ex *upstream.Exchange) error {
	if br.Buffered() == 0 {
		if err := a.more(br); err != nil {
			return err
		}
	}
	if !a.discard && ex.Times.FirstByte.IsZero() {
		ex.Times.FirstByte = time.Now()
	}
	var scratch []byte
	fields := scratch
	if !a.discard {
		fields = ex.Answer.Fields[:0]
	}
	// No more than a head may take: what lies behind must not decide anything.
	b, _ := br.Peek(min(br.Buffered(), a.maxHead))
	n, fields, err := parseHead(b, &a.head, fields)
	switch {
	case err != nil:
		return err
	case n == 0:
		return a.more(br)
	}
	if !a.discard {
		ex.Answer.Fields = fields
	}
	br.Discard(n) //nolint:errcheck // n bytes are buffered
	if a.head.status < 200 {
		if a.head.status == 101 {
			return errSwitching
		}
		if a.head.hasTE || a.head.contentLength > 0 {
			return errInterimBody
		}
		if a.interim++; a.interim > maxInterim {
			return errInterimFlood
		}
		return nil
	}
	if !a.discard {
		ex.Answer.Status, ex.Answer.ContentLength = a.head.status, a.head.statedLength()
	}
	switch a.head.framing(a.toHEAD) {
	case noBody:
		a.phase = atEnd
	case fixedLength:
		if a.head.contentLength > a.maxBody {
			return errBodyTooLarge
		}
		a.phase, a.left = inFixed, a.head.contentLength
		return a.grow(ex, a.left)
	case chunked:
		a.phase = inChunkSize
	case untilClose:
		a.phase = inUntilClose
	}
	return nil
}

// grow makes room for n more bytes of the body: under the limit, in the budget,
// and in ex's buffer. After ErrOverBudget a can go on, if it discards.
func (a *answerReader) grow(ex *upstream.Exchange, n int) error {
	if n > a.maxBody-a.size {
		return errBodyTooLarge
	}
	a.size += n
	if a.discard {
		return nil
	}
	if !ex.Reserve(n) {
		return upstream.ErrOverBudget
	}
	if body := ex.Answer.Body; cap(body)-len(body) < n {
		ex.Answer.Body = append(make([]byte, 0, max(len(body)+n, 2*cap(body))), body...)
	}
	return nil
}

// readBody takes what there is of left bytes, waiting for the first of them.
func (a *answerReader) readBody(br *bufio.Reader, ex *upstream.Exchange) error {
	for a.left > 0 {
		if a.discard {
			if br.Buffered() == 0 {
				if err := a.more(br); err != nil {
					return err
				}
			}
			n, _ := br.Discard(min(a.left, br.Buffered()))
			a.left -= n
			continue
		}
		if br.Buffered() == 0 {
			a.waits++
		}
		body := ex.Answer.Body
		n, err := br.Read(body[len(body) : len(body)+a.left])
		ex.Answer.Body = body[:len(body)+n]
		a.left -= n
		if n == 0 && err != nil {
			return err
		}
	}
	if a.phase == inFixed {
		a.phase = atEnd
	} else {
		a.phase = inChunkEnd
	}
	return nil
}

// readUntilClose takes a body that ends with the connection: HTTP/1.0's way.
func (a *answerReader) readUntilClose(br *bufio.Reader, ex *upstream.Exchange) error {
	if br.Buffered() == 0 {
		if err := a.more(br); err != nil {
			if errors.Is(err, io.EOF) {
				a.phase = atEnd
				return nil
			}
			return err
		}
	}
	n := br.Buffered()
	err := a.grow(ex, n)
	if err == nil && !a.discard {
		b, _ := br.Peek(n)
		ex.Answer.Body = append(ex.Answer.Body, b...)
	}
	br.Discard(n) //nolint:errcheck // n bytes are buffered
	return err
}

// more waits for at least one byte beyond what is buffered.
func (a *answerReader) more(br *bufio.Reader) error {
	a.waits++
	if br.Buffered() >= a.maxHead {
		return errHeadTooLarge
	}
	_, err := br.Peek(br.Buffered() + 1)
	if errors.Is(err, bufio.ErrBufferFull) {
		return errHeadTooLarge
	}
	return err
}
