package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"

	"adbuffer/internal/syntax"
)

// maxHead bounds the message heads of a response: the final one and those of interim responses.
const maxHead = 64 << 10

// checkHeads reads the heads of the next response without consuming them. It refuses what fasthttp's
// parser accepts and no server may send: framing that readers read differently, and field names that
// are not tokens. RFC 9112, sections 5.1 and 6.1.
func checkHeads(in *bufio.Reader) error {
	for start, interim := 0, true; interim; {
		head, err := peekHead(in, start)
		if err != nil {
			return err
		}
		start += len(head)
		line, fields, _ := bytes.Cut(head[:len(head)-2], []byte("\r\n"))
		if len(line) < 12 || string(line[:7]) != "HTTP/1." || line[8] != ' ' || len(line) > 12 && line[12] != ' ' {
			return fmt.Errorf("not a status line: %.40q", line)
		}
		status, ok := syntax.ParseStatus(line[9:12])
		if !ok {
			return fmt.Errorf("not a status: %.3q", line[9:])
		}
		if err := checkFields(fields, line[7] == '0'); err != nil {
			return err
		}
		interim = status < 200
	}
	return nil
}

// peekHead returns the head at start of in, with the empty line at its end.
func peekHead(in *bufio.Reader, start int) ([]byte, error) {
	for n := start + 1; ; n = in.Buffered() + 1 {
		if _, err := in.Peek(n); err != nil {
			return nil, err
		}
		b, _ := in.Peek(in.Buffered())
		if i := bytes.Index(b[start:], []byte("\r\n\r\n")); i >= 0 {
			return b[start : start+i+4], nil
		}
	}
}

func checkFields(fields []byte, http10 bool) error {
	length, chunked := false, false
	for len(fields) > 0 {
		name, value, rest := syntax.CutField(fields)
		if !syntax.IsToken(name) {
			return fmt.Errorf("not a header field: %.40q", fields)
		}
		fields = rest
		switch {
		case syntax.EqualFold(name, "content-length"):
			if _, ok := syntax.ParseNumber(value, syntax.MaxNumber); !ok || length {
				return fmt.Errorf("content-length %.20q", value)
			}
			length = true
		case syntax.EqualFold(name, "transfer-encoding"):
			if http10 || chunked || !syntax.EqualFold(value, "chunked") {
				return fmt.Errorf("transfer-encoding %.20q", value)
			}
			chunked = true
		}
	}
	if chunked && length {
		return errors.New("content-length beside transfer-encoding")
	}
	return nil
}
