//go:build !race

package http1

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/syntax"
)

// This is a second reader of responses, written from RFC 9112 alone, with regular expressions
// instead of a state machine. It has the whole input, and no limits. The fuzz tests compare the
// parser with it for every input.

// reference is the result of the second reader.
type reference struct {
	bad, short bool // the input has a violation, or ends too early
	status     int
	body       string
	end        int
	odd        bool // readable, but the connection cannot be trusted
	last       bool // the connection ends after it
	closes     bool // because of Connection: close
}

var (
	badVerdict, shortVerdict = reference{bad: true}, reference{short: true}

	// Sections 4 and 2.3; 5 and 5.1; 7.1. RFC 9110, section 5.5, for values.
	statusLine = regexp.MustCompile(`^HTTP/1\.([01]) ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?$`)
	fieldLine  = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*((?:[\\t\\x20-\\x7e\\x80-\\xff]*[\\x21-\\x7e\\x80-\\xff])?)[ \t]*$")
	foldLine   = regexp.MustCompile(`^[ \t][\t\x20-\x7e\x80-\xff]*$`)
	chunkLine  = regexp.MustCompile(`^([0-9A-Fa-f]+)(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?$`)
)

// latin1 turns each byte into a character, so that the expressions match bytes.
func latin1(b []byte) string {
	var s strings.Builder
	for _, c := range b {
		s.WriteRune(rune(c))
	}
	return s.String()
}

// cutReferenceLine cuts the first line off s. bare says that it ended in LF alone.
func cutReferenceLine(s string) (line, rest string, bare, ok bool) {
	line, rest, ok = strings.Cut(s, "\n")
	line, crlf := strings.CutSuffix(line, "\r")
	return line, rest, !crlf, ok
}

// byRFC9112 reads the response to method at the start of input.
func byRFC9112(input []byte, method exchange.Method) reference {
	s := latin1(input)
	length := len(input)
	at := func(rest string) int { return length - len([]rune(rest)) }
	odd := false // an interim response was odd, or would end the connection
	for {
		v, coded, stated, rest := referenceHead(s)
		if v.bad || v.short {
			return v
		}
		if v.status < 200 { // RFC 9110, section 15.2: no body; no upgrade was requested
			if v.status == 101 {
				return badVerdict
			}
			s, odd = rest, odd || v.odd || v.last || coded || stated > 0
			continue
		}
		v.odd = v.odd || odd || coded && stated >= 0 // section 6.1
		// Section 6.3, in its order.
		switch {
		case method == exchange.HEAD || v.status == 204 || v.status == 304:
			v.odd = v.odd || v.status == 204 && (coded || stated > 0)
			v.end = at(rest)
		case coded:
			return v.chunks(rest, at)
		case stated >= 0:
			body := []rune(rest)
			if len(body) < stated {
				return shortVerdict
			}
			v.body, v.end = string(body[:stated]), at(string(body[stated:]))
		default:
			v.body, v.end, v.last = rest, length, true
		}
		return v
	}
}

// referenceHead reads a status line and fields. stated is the Content-Length, -1
// for none.
func referenceHead(s string) (v reference, coded bool, stated int, rest string) {
	line, rest, bare, ok := cutReferenceLine(s)
	if !ok {
		return shortVerdict, false, 0, ""
	}
	m := statusLine.FindStringSubmatch(line)
	if m == nil {
		return badVerdict, false, 0, ""
	}
	v.status, _ = strconv.Atoi(m[2])
	old := m[1] == "0"
	v.odd, v.last, stated = bare, old, -1
	framing, first := false, true
	for ; ; first = false {
		if line, rest, bare, ok = cutReferenceLine(rest); !ok {
			return shortVerdict, false, 0, ""
		}
		v.odd = v.odd || bare
		if line == "" {
			return v, coded, stated, rest
		}
		if line[0] == ' ' || line[0] == '\t' { // section 5.2
			if first || framing || !foldLine.MatchString(line) {
				return badVerdict, false, 0, ""
			}
			v.odd = true
			continue
		}
		m := fieldLine.FindStringSubmatch(line)
		if m == nil {
			return badVerdict, false, 0, ""
		}
		framing = true
		switch strings.ToLower(m[1]) {
		case "content-length": // sections 6.2 and 6.3: one number
			n, err := strconv.ParseUint(m[2], 10, 63)
			if digits := regexp.MustCompile(`^[0-9]+$`).MatchString(m[2]); !digits || stated >= 0 {
				return badVerdict, false, 0, ""
			} else if err != nil {
				n = 1 << 62 // more than any limit
			}
			stated = int(n)
		case "transfer-encoding": // section 6.1: chunked alone, once, and never in HTTP/1.0
			if coded || old || !strings.EqualFold(m[2], "chunked") {
				return badVerdict, false, 0, ""
			}
			coded = true
		case "connection": // section 9.3
			if slices.ContainsFunc(strings.Split(m[2], ","), func(o string) bool { return strings.EqualFold(strings.Trim(o, " \t"), "close") }) {
				v.last, v.closes = true, true
			}
		default:
			framing = false
		}
	}
}

// chunks reads a chunked body and its trailers. Section 7.1: line ends are CRLF.
func (v reference) chunks(rest string, at func(string) int) reference {
	for {
		line, next, bare, ok := cutReferenceLine(rest)
		if !ok {
			return shortVerdict
		}
		m := chunkLine.FindStringSubmatch(line)
		if m == nil || bare {
			return badVerdict
		}
		size, err := strconv.ParseUint(m[1], 16, 30)
		if err != nil {
			return badVerdict
		}
		rest = next
		if size == 0 {
			break
		}
		data := []rune(rest)
		if uint64(len(data)) < size+2 {
			return shortVerdict
		}
		if string(data[size:size+2]) != "\r\n" {
			return badVerdict
		}
		v.body += string(data[:size])
		rest = string(data[size+2:])
	}
	for {
		line, next, bare, ok := cutReferenceLine(rest)
		switch {
		case !ok:
			return shortVerdict
		case bare:
			return badVerdict
		case line == "":
			v.end = at(next)
			return v
		case !fieldLine.MatchString(line):
			return badVerdict
		}
		rest = next
	}
}

// checkReference compares the parser's result with the reference.
func checkReference(tb testing.TB, input []byte, method exchange.Method, got outcome) {
	tb.Helper()
	if len(input) > 8<<10 {
		return // the reference is too slow for this input
	}
	for _, limit := range []error{errHeadTooLarge, errBodyTooLarge, errTooManyFields, errInterimFlood, syntax.ErrChunksTooLarge, syntax.ErrChunkLine, syntax.ErrTrailerTooLarge, syntax.ErrTrailerFields} {
		if got.err == limit.Error() {
			return // the reference has no limits
		}
	}
	want := byRFC9112(input, method)
	switch failed := got.err != ""; {
	case failed != (want.bad || want.short):
		tb.Fatalf("%v %q: %+v, by RFC 9112 %+v", method, input, got, want)
	case failed:
		return
	}
	if got.status != want.status || latin1([]byte(got.body)) != want.body || got.end != want.end || got.notReusable != want.odd || got.announcesClose != want.last || got.closes != want.closes {
		tb.Fatalf("%v %q: %+v, by RFC 9112 %+v", method, input, got, want)
	}
}

// These are valid responses with one or two bytes changed, removed, inserted or repeated.
func TestMutatedResponsesAreReadAsByRFC9112(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 112))
	const alphabet = "\r\n\t :;,=0159afAFxX-_\"\x00\x7f\x80HTP/."
	n := 3000
	if *full {
		n = 1_000_000
	}
	for range n {
		c := goodResponses[r.IntN(len(goodResponses))]
		input := []byte(c.head + c.rest)
		if len(input) > 400 {
			continue
		}
		for range 1 + r.IntN(2) {
			i := r.IntN(len(input))
			switch r.IntN(4) {
			case 0:
				input[i] = alphabet[r.IntN(len(alphabet))]
			case 1:
				input = slices.Delete(input, i, i+1)
			case 2:
				input = slices.Insert(input, i, alphabet[r.IntN(len(alphabet))])
			default:
				j := min(len(input), i+1+r.IntN(20))
				input = slices.Insert(input, i, slices.Clone(input[i:j])...)
			}
		}
		checkResponse(t, input, c.method, func() int { return 1 + r.IntN(30) })
	}
}
