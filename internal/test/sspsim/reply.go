package sspsim

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"net/http"
	"strings"
	"time"

	"adbuffer/internal/wire/syntax"
)

// document is the text before and after an id and the filler.
type document struct {
	contentType   string
	before, after string
	close         string
}

var documents = map[Kind]*document{
	OpenRTB: {"application/json", `{"id":`, `,"seatbid":[{"bid":[{"id":"1","impid":"1","price":1.25,"adm":"`,
		`"}],"seat":"sim"}],"cur":"USD"}`},
	VAST: {"application/xml", `<?xml version="1.0" encoding="UTF-8"?><VAST version="4.2"><Ad id="`,
		`"><InLine><AdSystem>sspsim</AdSystem><AdTitle>`,
		`</AdTitle><Impression>http://127.0.0.1/i</Impression><Creatives></Creatives></InLine></Ad></VAST>`},
	Raw:       {contentType: "application/octet-stream"},
	EmptyGzip: {contentType: "application/json", before: GzipHeader},
}

// GzipHeader is the header of a gzip body without a name, and EmptyBlock a deflate block that decodes to nothing.
const (
	GzipHeader = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
	EmptyBlock = "\x00\x00\x00\xff\xff"
)

var noBidDocuments = map[Kind]*document{
	OpenRTB: {"application/json", `{"id":`, `,"nbr":0}`, ""},
	VAST:    {"application/xml", "", `<?xml version="1.0" encoding="UTF-8"?><VAST version="4.2"></VAST>`, ""},
	Raw:     {contentType: "application/octet-stream"},

	EmptyGzip: {contentType: "application/json"},
}

// padding fills a body, and X-Pad, the field of an oversized message head.
var padding = strings.Repeat("x", 1000)

var emptyBlocks = strings.Repeat(EmptyBlock, 200)

// reply is one response before the framing of its protocol. A reply that is used again keeps its buffers.
type reply struct {
	status   int
	fields   []Field // without those of the framing, in the spelling of HTTP/1
	body     []byte
	hasBody  bool // false for a 204, which has no length
	trailers bool
}

// compose makes r the response to q.
func (p *script) compose(r *reply, f *fate, q *Request) {
	id := q.bidID()
	if fillBy := p.Response.FillBy; len(fillBy) > 0 && f.chance >= q.fillRate(fillBy) && !f.fault.needsBody() {
		f.traits[traitNoBid] = true
	}
	*r = reply{status: http.StatusOK, hasBody: true, trailers: f.traits[traitTrailers], fields: r.fields[:0], body: r.body[:0]}
	form := cmp.Or(p.Response.NoBidForm, NoBid204)
	switch {
	case f.fault == faultStatus:
		r.status = cmp.Or(f.status.Code, http.StatusServiceUnavailable)
		r.hasBody = r.status != http.StatusNoContent && r.status != http.StatusNotModified
		r.add("Content-Type", "application/json")
		if after := f.status.retryAfter(time.Now()); after != "" {
			r.add("Retry-After", after)
		}
		if r.hasBody {
			r.body = append(r.body, `{"error":"simulated"}`...)
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
		for left := cmp.Or(p.Faults.OversizedHead.Bytes, 64<<10); left > 0; left -= len(padding) {
			r.add("X-Pad", padding[:min(left, len(padding))])
		}
	}
}

func (r *reply) add(name, value string) { r.fields = append(r.fields, Field{name, value}) }

// writeDocument makes the response's body a document with the id of its request: bidID, or else the id in
// another part of the request.
func (p *script) writeDocument(r *reply, f *fate, q *Request, bidID []byte) {
	kind := cmp.Or(p.Response.Kind, OpenRTB)
	doc, size := documents[kind], f.size
	if f.traits[traitNoBid] {
		doc, size = noBidDocuments[kind], 0
	}
	if f.fault == faultOversizedBody {
		size = cmp.Or(p.Faults.OversizedBody.Bytes, 4<<20)
	} else if f.fault.needsBody() {
		size = max(size, 64)
	}
	r.add("Content-Type", doc.contentType)
	body := append(r.body, doc.before...)
	id := string(bidID)
	if id == "" {
		id = cmp.Or(q.cb(), q.requestID, "0")
	}
	switch {
	case kind == Raw && p.Response.Echo:
		body = append(body, id[:min(len(id), size)]...)
	case kind == VAST && !f.traits[traitNoBid]:
		text := bytes.NewBuffer(body)
		_ = xml.EscapeText(text, []byte(id)) // a bytes.Buffer takes everything
		body = text.Bytes()
	case kind == OpenRTB && len(bidID) > 0:
		body = append(append(append(body, '"'), id...), '"') // still with JSON's escapes
	case kind == OpenRTB:
		body = syntax.AppendJSONString(body, []byte(id))
	}
	body = append(body, doc.after...)
	padding := padding
	if kind == EmptyGzip {
		padding = emptyBlocks
	}
	for left := size - len(body) - len(doc.close); left > 0; left -= len(padding) {
		body = append(body, padding[:min(left, len(padding))]...)
	}
	r.body = append(body, doc.close...)
}
