package http2

import (
	"fmt"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// afterwards checks that the connection still carries exchanges.
func (p *peer) afterwards() {
	p.t.Helper()
	done := p.start(get("/afterwards"))
	p.respond(p.requestAfterResets().StreamID, "still here")
	wait(p.t, done).wantBody(p.t, "still here")
}

func TestMalformedHeaderResetsOnlyItsStream(t *testing.T) {
	for name, fields := range map[string][]string{
		"no :status":                       {"content-type", "text/plain"},
		"empty":                            {},
		":status twice":                    {":status", "200", ":status", "200"},
		":status behind a field":           {"a", "b", ":status", "200"},
		":status of two digits":            {":status", "20"},
		":status of four digits":           {":status", "2000"},
		":status over 599":                 {":status", "600"},
		":status below 100":                {":status", "099"},
		":status with a sign":              {":status", "+20"},
		":status, a value with a blank":    {":status", " 200"},
		"a pseudo-field of requests":       {":status", "200", ":path", "/"},
		"an unknown pseudo-field":          {":status", "200", ":state", "1"},
		"a pseudo-field in capitals":       {":Status", "200"},
		"a name in capitals":               {":status", "200", "X-Upper", "1"},
		"a name with one capital":          {":status", "200", "x-uPper", "1"},
		"an empty name":                    {":status", "200", "", "1"},
		"a name with a space":              {":status", "200", "a b", "1"},
		"a name with a colon":              {":status", "200", "a:b", "1"},
		"a name with a line end":           {":status", "200", "a\r\nb", "1"},
		"a name with a NUL":                {":status", "200", "a\x00", "1"},
		"a name with a byte over 127":      {":status", "200", "a\xe4", "1"},
		"a value with CR":                  {":status", "200", "a", "1\r2"},
		"a value with LF":                  {":status", "200", "a", "1\n2"},
		"a value with CRLF and a field":    {":status", "200", "a", "1\r\nset-cookie: evil=1"},
		"a value with NUL":                 {":status", "200", "a", "1\x002"},
		"a value with DEL":                 {":status", "200", "a", "1\x7f2"},
		"a long value with LF at the end":  {":status", "200", "a", strings.Repeat("v", 40) + "\n"},
		"a value that begins with a space": {":status", "200", "a", " 1"},
		"a value that ends with a tab":     {":status", "200", "a", "1\t"},
		"connection":                       {":status", "200", "connection", "close"},
		"keep-alive":                       {":status", "200", "keep-alive", "timeout=5"},
		"proxy-connection":                 {":status", "200", "proxy-connection", "close"},
		"transfer-encoding":                {":status", "200", "transfer-encoding", "chunked"},
		"upgrade":                          {":status", "200", "upgrade", "h2c"},
		"101":                              {":status", "101"},
		"content-length empty":             {":status", "200", "content-length", ""},
		"content-length negative":          {":status", "200", "content-length", "-1"},
		"content-length with a sign":       {":status", "200", "content-length", "+1"},
		"content-length a list":            {":status", "200", "content-length", "4, 4"},
		"content-length twice":             {":status", "200", "content-length", "4", "content-length", "4"},
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, testOptions())
			neighbour, other := p.begin(get("/neighbour"))
			done, id := p.begin(get("/"))
			p.head(id, false, fields...)
			// An error that is also possible over HTTP/1 does not count against HTTP/2.
			anyHTTP := strings.Contains(name, "value") || strings.HasPrefix(name, "content-length")
			wait(t, done).wantError(t, want{outcome: exchange.BadResponse, progress: exchange.MaybeProcessed, demote: !anyHTTP, detail: "malformed"})
			p.wantReset(id, h2.ErrCodeProtocol)
			p.data(id, true, "dropped")
			p.respond(other, "unharmed")
			wait(t, neighbour).wantBody(t, "unharmed")
			p.afterwards()
		})
	}
}

func TestFieldsArriveAsTheyWereSent(t *testing.T) {
	p := connect(t, testOptions())
	for range 3 { // literal, and then from the table
		done, id := p.begin(get("/"))
		p.head(id, true, ":status", "203",
			"set-cookie", "a=1", "set-cookie", "b=2", "x-empty", "", "x-tab", "a\tb", "x-latin", "caf\xe9", "!#$%&'*+-.^_`|~09az", "token",
			"content-length", "0", "te", "trailers", "x-long", strings.Repeat("long", 100))
		res := wait(t, done)
		want := "set-cookie: a=1\r\nset-cookie: b=2\r\nx-empty: \r\nx-tab: a\tb\r\nx-latin: caf\xe9\r\n!#$%&'*+-.^_`|~09az: token\r\n" +
			"content-length: 0\r\nte: trailers\r\nx-long: " + strings.Repeat("long", 100) + "\r\n"
		if res.err != nil || res.status != 203 || res.length != 0 || res.fields != want {
			t.Fatalf("got %v, %d, length %d, fields\n%q, want\n%q", res.err, res.status, res.length, res.fields, want)
		}
	}
}

func TestInterimResponsesAreSkipped(t *testing.T) {
	p := connect(t, testOptions())
	done, id := p.begin(get("/"))
	for i := range maxInterim {
		p.head(id, false, ":status", fmt.Sprint(100+i%2*3), "x-interim", "1", "content-length", "5") // 100 and 103
	}
	p.head(id, false, ":status", "200", "x-final", "1")
	p.data(id, true, "body")
	res := wait(t, done)
	res.wantBody(t, "body")
	testsupport.Equal(t, res.fields, "x-final: 1\r\n", "fields are %q")
}

func TestInterimResponsesAreBounded(t *testing.T) {
	p := connect(t, testOptions())
	done, id := p.begin(get("/"))
	for range maxInterim + 1 {
		p.head(id, false, ":status", "103")
	}
	wait(t, done).wantError(t, want{outcome: exchange.BadResponse, progress: exchange.MaybeProcessed, detail: "more than 16 1xx responses"})
	p.wantReset(id, h2.ErrCodeEnhanceYourCalm)
	p.afterwards()
}

func TestInterimResponseMustNotEndTheStream(t *testing.T) {
	p := connect(t, testOptions())
	done, id := p.begin(get("/"))
	p.head(id, true, ":status", "103")
	wait(t, done).wantError(t, want{outcome: exchange.BadResponse, progress: exchange.MaybeProcessed, demote: true, detail: "1xx"})
	p.afterwards()
}

func TestTrailersAreCheckedAndDropped(t *testing.T) {
	for name, c := range map[string]struct {
		fields []string
		last   bool
		bad    string
	}{
		"good":                  {fields: []string{"x-checksum", "1"}, last: true},
		"none":                  {last: true},
		"a pseudo-field":        {fields: []string{":status", "200"}, last: true, bad: "trailers"},
		"capitals":              {fields: []string{"X-Checksum", "1"}, last: true, bad: "name"},
		"transfer-encoding":     {fields: []string{"transfer-encoding", "chunked"}, last: true, bad: "connection-specific"},
		"not the end":           {fields: []string{"x-checksum", "1"}, bad: "second head"},
		"another final head":    {fields: []string{":status", "200"}, bad: "trailers"},
		"a malformed value":     {fields: []string{"x", "a\nb"}, last: true, bad: "value"},
		"a bad content-length":  {fields: []string{"content-length", "x"}, last: true, bad: "content-length"},
		"a late content-length": {fields: []string{"content-length", "99"}, last: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, testOptions())
			done, id := p.begin(get("/"))
			p.head(id, false, ":status", "200", "x-head", "1")
			p.data(id, false, "body")
			p.head(id, c.last, c.fields...)
			res := wait(t, done)
			if c.bad != "" {
				anyHTTP := c.bad == "value" || c.bad == "content-length"
				res.wantError(t, want{outcome: exchange.BadResponse, progress: exchange.MaybeProcessed, demote: !anyHTTP, detail: c.bad})
				p.wantReset(id, h2.ErrCodeProtocol)
			} else {
				res.wantBody(t, "body")
				testsupport.Equal(t, res.fields, "x-head: 1\r\n", "fields are %q")
			}
			p.afterwards()
		})
	}
}

func TestMisdirectedRequestAsksForHTTP1(t *testing.T) {
	for _, last := range []bool{true, false} {
		p := connect(t, testOptions())
		done := p.start(get("/"))
		p.head(p.request().StreamID, last, ":status", "421")
		wait(t, done).wantError(t, want{outcome: exchange.BadResponse, progress: exchange.NotProcessed, refuses: true, overHTTP1: true, detail: "421"})
	}
}

func TestHeaderListOverTheLimitResetsOnlyItsStream(t *testing.T) {
	for name, fields := range map[string][]string{
		"a long value":   {":status", "200", "x", strings.Repeat("v", 2000)},
		"a long name":    {":status", "200", strings.Repeat("n", 2000), "v"},
		"many fields":    append([]string{":status", "200"}, strings.Split(strings.Repeat("a,b,", 40), ",")[:80]...),
		"before :status": {"x", strings.Repeat("v", 2000), ":status", "200"},
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, with(func(o *Options) { o.MaxResponseHeaderBytes = 1000 }))
			done, id := p.begin(get("/"))
			p.head(id, false, fields...)
			wait(t, done).wantError(t, want{outcome: exchange.ResponseTooLarge, progress: exchange.MaybeProcessed, detail: "over 1000 bytes; see max_response_header_bytes"})
			p.wantReset(id, h2.ErrCodeCancel)
			// adbuffer's table is still equal to the peer's.
			done = p.start(get("/"))
			p.head(p.request().StreamID, true, ":status", "200", "a", "b")
			res := wait(t, done)
			testsupport.True(t, res.err == nil && res.fields == "a: b\r\n", "afterwards: %v, %q", res.err, res.fields)
		})
	}
}

// Each reference of one byte stands for a field of 3 KB. A few too many fail the exchange; 16 000
// references, 48 MB, close the connection.
func TestTableReferencesCannotInflateAHeaderList(t *testing.T) {
	for _, references := range []int{5, 15, 16000} {
		opts := testOptions()
		opts.MaxResponseHeaderBytes = 8 << 10
		p := connect(t, opts)
		done := p.start(get("/"))
		p.head(p.request().StreamID, true, ":status", "200", "x-bomb", strings.Repeat("b", 3000))
		wait(t, done)
		done = p.start(get("/"))
		id := p.request().StreamID
		block := p.encode(":status", "200", "x-bomb", strings.Repeat("b", 3000))
		for range references {
			block = append(block, block[len(block)-1])
		}
		p.do(p.fr.WriteHeaders(h2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true}))
		if references*3000 > http2codec.MaxBlock(opts.MaxResponseHeaderBytes) {
			p.wantGoAway(h2.ErrCodeEnhanceYourCalm)
			wait(t, done).wantError(t, want{outcome: exchange.BadResponse, progress: exchange.MaybeProcessed, demote: true, detail: "header list"})
		} else {
			wait(t, done).wantError(t, want{outcome: exchange.ResponseTooLarge, progress: exchange.MaybeProcessed})
			p.wantReset(id, h2.ErrCodeCancel)
			p.afterwards()
		}
		if n := cap(p.conn.in.block.Fields); n > 2*opts.MaxResponseHeaderBytes { // the reader is idle: the exchange has ended
			t.Errorf("%d bytes were used for the fields", n)
		}
	}
}

// The number of a response's fields is bounded, including its trailers, for any size and encoding
// of the fields.
func TestNumberOfFieldsIsBounded(t *testing.T) {
	tiny := func(n int) (fields []string) {
		for i := range n {
			fields = append(fields, fmt.Sprintf("%c", 'a'+i%26), "")
		}
		return fields
	}
	head := []string{":status", "200"}
	for name, c := range map[string]struct {
		header, trailers []string
		bad              bool
	}{
		"as many as may be":       {append(head, tiny(256)...), nil, false},
		"one more":                {append(head, tiny(257)...), nil, true},
		"with the trailers":       {append(head, tiny(200)...), tiny(56), false},
		"one more trailer":        {append(head, tiny(200)...), tiny(57), true},
		"too many trailers alone": {head, tiny(257), true},
		"many more":               {append(head, tiny(400)...), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, testOptions())
			for range 2 { // literals, and then references to the table
				done, id := p.begin(get("/"))
				p.head(id, false, c.header...)
				switch {
				case c.trailers != nil:
					p.data(id, false, "ok")
					p.head(id, true, c.trailers...)
				default:
					p.data(id, true, "ok")
				}
				if !c.bad {
					wait(t, done).wantBody(t, "ok")
					continue
				}
				wait(t, done).wantError(t, want{outcome: exchange.BadResponse, progress: exchange.MaybeProcessed, detail: "over 256 fields"})
				p.wantReset(id, h2.ErrCodeCancel)
				testsupport.AtMost(t, cap(p.conn.in.block.Fields), 2048, "%d bytes were used for the fields")
			}
			p.afterwards()
		})
	}
}

func TestHeaderBlockInManyFrames(t *testing.T) {
	p := connect(t, testOptions())
	done, id := p.begin(get("/"))
	block := p.encode(":status", "200", "x", strings.Repeat("v", 50))
	p.do(p.fr.WriteHeaders(h2.HeadersFrameParam{StreamID: id, BlockFragment: block[:1], PadLength: 7, Priority: h2.PriorityParam{Weight: 1}, EndStream: true}))
	for i := 1; i < len(block)-1; i++ {
		p.do(p.fr.WriteContinuation(id, false, block[i:i+1]))
	}
	p.do(p.fr.WriteContinuation(id, true, block[len(block)-1:]))
	res := wait(t, done)
	testsupport.True(t, res.err == nil && res.status == 200 && res.fields == "x: "+strings.Repeat("v", 50)+"\r\n", "got %+v", res)
}

func TestEndlessHeaderBlockClosesTheConnection(t *testing.T) {
	for name, piece := range map[string]int{"empty frames": 0, "full frames": http2codec.MaxFrameSize} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, testOptions())
			done, id := p.begin(get("/"))
			p.do(p.fr.WriteHeaders(h2.HeadersFrameParam{StreamID: id, BlockFragment: p.encode(":status", "200")}))
			for range http2codec.MaxContinuations + 1 {
				// The literal never ends. Bytes sent after the close do not matter.
				if p.fr.WriteContinuation(id, false, make([]byte, piece)) != nil {
					break
				}
			}
			wait(t, done).wantError(t, want{outcome: exchange.BadResponse, progress: exchange.MaybeProcessed, demote: true, detail: "bytes or 64 CONTINUATION frames"})
			testsupport.Equal(t, p.conn.CloseReason(), exchange.ClosedError, "reason %v")
		})
	}
}
