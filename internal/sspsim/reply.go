package sspsim

import (
	"bytes"
	"encoding/xml"
	"net/http"
	"strings"
	"time"
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
	contentType          []byte
	before, after, close []byte
}

var (
	typeJSON   = []byte("application/json")
	typeXML    = []byte("application/xml")
	typeBinary = []byte("application/octet-stream")
)

var documents = map[Kind]*document{
	OpenRTB: {typeJSON, []byte(`{"id":"`),
		[]byte(`","seatbid":[{"bid":[{"id":"1","impid":"1","price":1.25,"adm":"`), []byte(`"}],"seat":"sim"}],"cur":"USD"}`)},
	VAST: {typeXML, []byte(`<?xml version="1.0" encoding="UTF-8"?><VAST version="4.2"><Ad id="`),
		[]byte(`"><InLine><AdSystem>sspsim</AdSystem><AdTitle>`),
		[]byte(`</AdTitle><Impression>http://127.0.0.1/i</Impression><Creatives></Creatives></InLine></Ad></VAST>`)},
	Raw: {contentType: typeBinary},
}

var noBidDocuments = map[Kind]*document{
	OpenRTB: {typeJSON, []byte(`{"id":"`), []byte(`","nbr":0}`), nil},
	VAST:    {typeXML, nil, []byte(`<?xml version="1.0" encoding="UTF-8"?><VAST version="4.2"></VAST>`), nil},
	Raw:     {contentType: typeBinary},
}

const padField = "x-pad" // contains the filler of an oversized message head

// headerField is a field in the form of both protocols.
type headerField struct {
	name, lower string
	value       []byte
}

func newHeaderField(name, value string) headerField {
	return headerField{name: name, lower: strings.ToLower(name), value: []byte(value)}
}

// reply is one response before the framing of its protocol.
type reply struct {
	status      int
	contentType []byte // nil with an empty body
	retryAfter  string
	body        payload
	hasBody     bool // false for a 204, which has no length
	trailers    bool
}

// compose decides the response to a request with these ids. It builds the start of the body in
// scratch and returns scratch. The reply uses it until the response is written.
func (p *script) compose(f *fate, q *ids, scratch []byte) (reply, []byte) {
	kind := p.Response.Kind
	if kind == "" {
		kind = OpenRTB
	}
	if !bytes.Contains(q.body, p.bidFor) && !f.fault.needsBody() {
		f.traits[traitNoBid] = true
	}
	doc, r := documents[kind], reply{status: http.StatusOK, hasBody: true, trailers: f.traits[traitTrailers]}
	size := f.size
	switch {
	case f.fault == faultStatus:
		r.status, r.contentType = f.status.Code, typeJSON
		r.retryAfter = f.status.retryAfter(time.Now())
		if r.status == http.StatusNoContent || r.status == http.StatusNotModified {
			r.hasBody = false
			return r, scratch
		}
		r.body.tail = statusBody
		return r, scratch
	case f.traits[traitNoBid] && (p.Response.NoBidForm == "" || p.Response.NoBidForm == NoBid204):
		r.status, r.hasBody = http.StatusNoContent, false
		return r, scratch
	case f.traits[traitNoBid] && p.Response.NoBidForm == NoBidEmpty:
		return r, scratch
	case f.traits[traitNoBid]:
		doc, size = noBidDocuments[kind], 0
	}
	if f.fault == faultOversizedBody {
		size = p.Faults.OversizedBody.Bytes
	} else if f.fault.needsBody() {
		size = max(size, 64)
	}
	r.contentType = doc.contentType
	if p.contentType != nil {
		r.contentType = p.contentType
	}
	scratch = append(scratch[:0], doc.before...)
	switch {
	case kind == Raw && !p.Response.Echo, kind == VAST && f.traits[traitNoBid]:
	case kind == VAST:
		text := bytes.NewBuffer(scratch)
		_ = xml.EscapeText(text, q.best()) // a bytes.Buffer takes everything
		scratch = text.Bytes()
	case len(q.bid) > 0:
		scratch = append(scratch, q.bid...) // still with JSON's escapes
	default:
		scratch = appendJSONText(scratch, q.best())
	}
	if kind == Raw {
		scratch = scratch[:min(len(scratch), size)]
	}
	scratch = append(scratch, doc.after...)
	r.body = payload{head: scratch, tail: doc.close}
	r.body.pad = max(0, size-r.body.len())
	return r, scratch
}

var (
	cookieUID = []byte("sim_uid=1; Path=/; Max-Age=3600")
	cookieSID = []byte("sim_sid=2; Path=/; HttpOnly")
)

var statusBody = []byte(`{"error":"simulated"}`)

// fieldWriter builds a header, in either protocol.
type fieldWriter interface {
	// field adds one field; lower is name in lower case.
	field(name, lower string, value []byte)
}

// writeFields writes the end-to-end fields of the response, without its framing.
func (r *reply) writeFields(w fieldWriter, p *script, f *fate, q *ids) {
	if r.contentType != nil {
		w.field("Content-Type", "content-type", r.contentType)
	}
	if r.retryAfter != "" {
		w.field("Retry-After", "retry-after", []byte(r.retryAfter))
	}
	if p.Response.Echo {
		if len(q.requestID) > 0 {
			w.field("X-Request-Id", "x-request-id", q.requestID)
		}
		if len(q.cb) > 0 {
			w.field("X-Echo-Cb", "x-echo-cb", q.cb)
		}
		if len(q.bid) > 0 {
			w.field("X-Echo-Id", "x-echo-id", q.bid)
		}
	}
	if f.traits[traitCookies] {
		w.field("Set-Cookie", "set-cookie", cookieUID)
		w.field("Set-Cookie", "set-cookie", cookieSID)
	}
	for i := range p.headers {
		w.field(p.headers[i].name, p.headers[i].lower, p.headers[i].value)
	}
	if f.fault == faultOversizedHead {
		for left := p.Faults.OversizedHead.Bytes; left > 0; left -= 1000 {
			w.field("X-Pad", padField, filler[:min(left, 1000)])
		}
	}
}
