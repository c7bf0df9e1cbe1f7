package http1

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"adbuffer/internal/upstream"
)

// answerReader reads one answer. It can be interrupted by a deadline at any
// byte and go on later: an abandoned answer is read to its end that way, and
// discarded, so that its connection can be used again.
type answerReader struct {
	maxHead   int // bytes of a head; also the size of the bufio.Reader
	maxBody   int
	maxFields int

	toHEAD  bool
	discard bool // nobody wants the answer any more: keep nothing of it

	phase    phase
	head     headParser
	interim  int // 1xx answers so far
	left     int // bytes of the body, or of the chunk, that are still to come
	size     int // bytes of the body so far
	searched int // no LF stands in so much of what is buffered; see line
	trailer  int // bytes of the trailer section so far
	waits    int // reads that had to wait for the network
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

// answerReader returns one under the limits of o.
func (o *Options) answerReader() answerReader {
	a := answerReader{maxHead: o.MaxResponseHeaderBytes, maxBody: o.MaxResponseBytes, maxFields: o.MaxResponseFields}
	if a.maxFields <= 0 {
		a.maxFields = 256
	}
	return a
}

// maxInterim is how many 1xx answers may precede the final one.
const maxInterim = 16

// start prepares a for the answer to a request with method m.
func (a *answerReader) start(m upstream.Method) {
	*a = answerReader{maxHead: a.maxHead, maxBody: a.maxBody, maxFields: a.maxFields, toHEAD: m == upstream.HEAD}
	a.head.maxFields = a.maxFields
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
			err = a.readChunkSize(br)
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
	var lines []byte
	if !a.discard {
		lines = ex.Response.Fields
	}
	// No more than a head may take: what lies behind must not decide anything.
	b, _ := br.Peek(min(br.Buffered(), a.maxHead))
	n, lines, err := a.head.parse(b, lines, !a.discard)
	if !a.discard {
		ex.Response.Fields = lines
	}
	switch {
	case err != nil:
		return err
	case n == 0:
		return a.more(br)
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
		a.head = headParser{maxFields: a.maxFields}
		if !a.discard {
			ex.Response.Fields = ex.Response.Fields[:0]
		}
		return nil
	}
	if !a.discard {
		ex.Response.Status, ex.Response.ContentLength = a.head.status, a.head.statedLength()
	}
	switch a.head.framing(a.toHEAD) {
	case noBody:
		a.phase = atEnd
	case fixedLength:
		a.phase, a.left = inFixed, a.head.contentLength
		return a.claim(a.left)
	case chunked:
		a.phase = inChunkSize
	case untilClose:
		a.phase = inUntilClose
	}
	return nil
}

// claim counts n more bytes that the SSP says are part of the body. A claim is
// held against the limit of a body, and takes no memory.
func (a *answerReader) claim(n int) error {
	if n > a.maxBody-a.size {
		return errBodyTooLarge
	}
	a.size += n
	return nil
}

// readBody takes left bytes as they come. If they do not fit into the budget, it
// returns an error of upstream's, after which a can go on if it discards.
func (a *answerReader) readBody(br *bufio.Reader, ex *upstream.Exchange) error {
	for a.left > 0 {
		var n int
		var err error
		switch {
		case br.Buffered() > 0:
			n, err = a.takeBuffered(br, ex, a.left)
		case a.discard:
			err = a.more(br)
		default:
			a.waits++
			n, err = br.Read(ex.BodyRoom(a.left))
			if n > 0 {
				err = ex.TakeBody(n)
			}
		}
		a.left -= n
		if err != nil {
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
	if err := a.claim(br.Buffered()); err != nil {
		return err
	}
	_, err := a.takeBuffered(br, ex, br.Buffered())
	return err
}

// takeBuffered takes what is buffered of the next n bytes of the body, and
// returns how many these were, also where they did not fit into the budget.
func (a *answerReader) takeBuffered(br *bufio.Reader, ex *upstream.Exchange, n int) (int, error) {
	n = min(n, br.Buffered())
	var err error
	if !a.discard {
		b, _ := br.Peek(n)
		err = ex.AppendBody(b)
	}
	br.Discard(n) //nolint:errcheck // n bytes are buffered
	return n, err
}

// typed says what ended the reading of an answer. began: a byte of it had come.
func (a *answerReader) typed(err error, began, reused bool) error {
	var typed *upstream.Error
	e := &upstream.Error{Progress: upstream.MaybeProcessed, Err: err}
	switch {
	case errors.As(err, &typed):
		return typed
	case errors.Is(err, errHeadTooLarge):
		e.Outcome, e.Detail = upstream.ResponseTooLarge, fmt.Sprintf("over %d bytes; see max_response_header_bytes", a.maxHead)
	case errors.Is(err, errBodyTooLarge):
		e.Outcome, e.Detail = upstream.ResponseTooLarge, fmt.Sprintf("over %d bytes; see max_response_bytes", a.maxBody)
	case errors.Is(err, errTooManyFields):
		e.Outcome, e.Detail = upstream.BadResponse, fmt.Sprintf("over %d fields; see max_response_fields", a.maxFields)
	case !isConnError(err):
		e.Outcome = upstream.BadResponse
	case began:
		e.Outcome, e.Detail = upstream.ConnLost, "in the middle of the answer"
	default:
		e.Outcome, e.Detail, e.Stale = upstream.ConnLost, "before the first byte of the answer", reused
	}
	return e
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
