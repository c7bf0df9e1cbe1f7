package sspsim

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"net/http"
	"time"

	"adbuffer/internal/syntax"
)

// payload is a response's body: head, pad bytes of filler, tail. next reads it piece by piece, so
// that a large body is never held in memory.
type payload struct {
	head, tail []byte
	pad        int
}

const fillerSize = 16 << 10

var filler = bytes.Repeat([]byte("x"), fillerSize)

func (b *payload) len() int { return len(b.head) + b.pad + len(b.tail) }

// next removes and returns the next piece, at most limit bytes. It is empty at the end.
func (b *payload) next(limit int) []byte {
	var piece []byte
	switch {
	case len(b.head) > 0:
		n := min(limit, len(b.head))
		piece, b.head = b.head[:n], b.head[n:]
	case b.pad > 0:
		n := min(limit, b.pad, fillerSize)
		piece, b.pad = filler[:n], b.pad-n
	default:
		n := min(limit, len(b.tail))
		piece, b.tail = b.tail[:n], b.tail[n:]
	}
	return piece
}

// cut shortens the body to its first n bytes.
func (b *payload) cut(n int) {
	b.head = b.head[:min(n, len(b.head))]
	n -= len(b.head)
	b.pad = min(n, b.pad)
	n -= b.pad
	b.tail = b.tail[:min(n, len(b.tail))]
}

// document is the text before and after an id and the filler.
type document struct {
	contentType   string
	before, after string
	close         []byte
}

var documents = map[Kind]*document{
	OpenRTB: {"application/json", `{"id":`, `,"seatbid":[{"bid":[{"id":"1","impid":"1","price":1.25,"adm":"`,
		[]byte(`"}],"seat":"sim"}],"cur":"USD"}`)},
	VAST: {"application/xml", `<?xml version="1.0" encoding="UTF-8"?><VAST version="4.2"><Ad id="`,
		`"><InLine><AdSystem>sspsim</AdSystem><AdTitle>`,
		[]byte(`</AdTitle><Impression>http://127.0.0.1/i</Impression><Creatives></Creatives></InLine></Ad></VAST>`)},
	Raw: {contentType: "application/octet-stream"},
}

var noBidDocuments = map[Kind]*document{
	OpenRTB: {"application/json", `{"id":`, `,"nbr":0}`, nil},
	VAST:    {"application/xml", "", `<?xml version="1.0" encoding="UTF-8"?><VAST version="4.2"></VAST>`, nil},
	Raw:     {contentType: "application/octet-stream"},
}

// padding is a value of X-Pad, the field that fills an oversized message head.
var padding = string(filler[:1000])

// reply is one response before the framing of its protocol. A reply that is used again keeps its buffers.
type reply struct {
	status   int
	fields   []Field // without those of the framing, in the spelling of HTTP/1
	body     payload
	hasBody  bool // false for a 204, which has no length
	trailers bool
	start    []byte // buffer of the body's start
}

// compose makes r the response to q.
func (p *script) compose(r *reply, f *fate, q *Request) {
	id := q.bidID()
	if !bytes.Contains(q.Body, p.bidFor) && !f.fault.needsBody() {
		f.traits[traitNoBid] = true
	}
	*r = reply{status: http.StatusOK, hasBody: true, trailers: f.traits[traitTrailers], fields: r.fields[:0], start: r.start[:0]}
	form := cmp.Or(p.Response.NoBidForm, NoBid204)
	switch {
	case f.fault == faultStatus:
		r.status = f.status.Code
		r.hasBody = r.status != http.StatusNoContent && r.status != http.StatusNotModified
		r.add("Content-Type", "application/json")
		if after := f.status.retryAfter(time.Now()); after != "" {
			r.add("Retry-After", after)
		}
		if r.hasBody {
			r.body.tail = statusBody
		}
	case f.traits[traitNoBid] && form == NoBid204:
		r.status, r.hasBody = http.StatusNoContent, false
	case f.traits[traitNoBid] && form == NoBidEmpty:
	default:
		p.writeDocument(r, f, q, id)
	}
	if p.Response.Echo {
		for _, f := range []Field{{"X-Request-Id", q.requestID}, {"X-Echo-Cb", q.cb()}, {"X-Echo-Id", string(id)}} {
			if f.Value != "" {
				r.add(f.Name, f.Value)
			}
		}
	}
	if f.traits[traitCookies] {
		r.add("Set-Cookie", "sim_uid=1; Path=/; Max-Age=3600")
		r.add("Set-Cookie", "sim_sid=2; Path=/; HttpOnly")
	}
	r.fields = append(r.fields, p.Response.Headers...)
	if f.fault == faultOversizedHead {
		for left := p.Faults.OversizedHead.Bytes; left > 0; left -= len(padding) {
			r.add("X-Pad", padding[:min(left, len(padding))])
		}
	}
}

var statusBody = []byte(`{"error":"simulated"}`)

func (r *reply) add(name, value string) { r.fields = append(r.fields, Field{name, value}) }

// writeDocument makes the response's body a document with the id of its request: bidID, or else that of
// another part of the request.
func (p *script) writeDocument(r *reply, f *fate, q *Request, bidID []byte) {
	kind := cmp.Or(p.Response.Kind, OpenRTB)
	doc, size := documents[kind], f.size
	if f.traits[traitNoBid] {
		doc, size = noBidDocuments[kind], 0
	}
	if f.fault == faultOversizedBody {
		size = p.Faults.OversizedBody.Bytes
	} else if f.fault.needsBody() {
		size = max(size, 64)
	}
	r.add("Content-Type", cmp.Or(p.Response.ContentType, doc.contentType))
	start := append(r.start, doc.before...)
	id := string(bidID)
	if id == "" {
		id = cmp.Or(q.cb(), q.requestID, "0")
	}
	switch {
	case kind == Raw && p.Response.Echo:
		start = append(start, id[:min(len(id), size)]...)
	case kind == VAST && !f.traits[traitNoBid]:
		text := bytes.NewBuffer(start)
		_ = xml.EscapeText(text, []byte(id)) // a bytes.Buffer takes everything
		start = text.Bytes()
	case kind == OpenRTB && len(bidID) > 0:
		start = append(append(append(start, '"'), id...), '"') // still with JSON's escapes
	case kind == OpenRTB:
		start = syntax.AppendJSONString(start, []byte(id))
	}
	r.start = append(start, doc.after...)
	r.body = payload{head: r.start, tail: doc.close}
	r.body.pad = max(0, size-r.body.len())
}
