package proxy

import (
	"bytes"
	"time"

	"adbuffer/internal/openrtb"
)

// tmax returns the tmax of r's body if that is an uncompressed JSON object, and notes its position
// for the SSPs.
func tmax(r *request) (time.Duration, bool) {
	if r.fields.ContentEncoding() != nil {
		return 0, false
	}
	d, start, end := scanTmax(r.body)
	r.ssp.TmaxStart, r.ssp.TmaxEnd = start, end
	return d, end > start
}

// maxTmaxScan bounds how far into a body tmax is searched: as far as the largest body that
// server.max_body_bytes allows by default.
const maxTmaxScan = 256 << 10

var (
	tmaxKey  = []byte(`"tmax"`)
	findTmax = openrtb.NewFinder(openrtb.Path{"tmax"})
)

// scanTmax finds the top-level key "tmax" of a JSON object. It returns its value and the offsets of
// its digits, body[start:end]. start is end if there is none, or if it is not an integer from 1 to
// 600000, written with digits alone. It finds none in a body that spells the key with escapes alone.
//
// If there are several keys, the first one counts. Parsers differ here (RFC 8259, section 4; most
// take the last). Only the first can be found without reading to the end of the body.
func scanTmax(body []byte) (value time.Duration, start, end int) {
	body = body[:min(len(body), maxTmaxScan)]
	if !bytes.Contains(body, tmaxKey) {
		return 0, 0, 0 // this check costs a tenth of a scan
	}
	start, end = findTmax.Find(body)
	if start == end {
		return 0, 0, 0
	}
	value, ok := parseMs(body[start:end])
	if !ok {
		return 0, 0, 0
	}
	return value, start, end
}
