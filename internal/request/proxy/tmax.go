package proxy

import (
	"bytes"
	"time"

	"adbuffer/internal/wire/openrtb"
)

// tmax returns the tmax of r's body, if the body is a JSON object, possibly in gzip. For an uncompressed body it also
// stores the position of tmax, for SSPs whose tmax is rewritten.
func tmax(r *request) (time.Duration, bool, *refusal) {
	coding := r.fields.ContentEncoding()
	switch {
	case coding == nil:
		d, start, end := scanTmax(r.body)
		r.ssp.TmaxStart, r.ssp.TmaxEnd = start, end
		return d, end > start, nil
	case r.opts.Deadline.OpenRTBTmax && r.fields.Codings() == 1 && openrtb.IsGzip(coding):
		return codedTmax(r)
	}
	return 0, false, nil
}

// codedTmax returns the tmax of a body in gzip. It decodes at most max_body_bytes, which is also the limit for a body
// without a coding.
func codedTmax(r *request) (time.Duration, bool, *refusal) {
	g := r.gunzipper()
	defer g.Release()
	document, err := g.Decode(r.body, min(r.opts.MaxBodyBytes, maxTmaxScan))
	if f := r.undecoded(err); f != nil {
		return 0, false, f
	}
	d, start, end := scanTmax(document)
	return d, end > start, nil
}

// maxTmaxScan bounds how far into a body tmax is searched. It is the default of server.max_body_bytes.
const maxTmaxScan = 256 << 10

var (
	tmaxKey  = []byte(`"tmax"`)
	findTmax = openrtb.NewFinder(openrtb.Path{"tmax"})
)

// scanTmax finds the top-level member "tmax" of a JSON object. It returns the value, rounded down to milliseconds, whose
// text is body[start:end]. start equals end if the body has no such member, or if its value is not a number whose whole
// part is from 1 to 600000. scanTmax does not find a member whose name is written with escapes.
//
// If the body has the member more than once, scanTmax returns the first, since only the first can be found without
// reading to the end of the body. Parsers differ here: RFC 8259, section 4; most take the last.
func scanTmax(body []byte) (value time.Duration, start, end int) {
	body = body[:min(len(body), maxTmaxScan)]
	if !bytes.Contains(body, tmaxKey) {
		return 0, 0, 0 // this check costs a tenth of a scan
	}
	start, end = findTmax.Find(body)
	ms, ok := openrtb.Floor(body[start:end], maxStatedMs)
	if !ok || ms < minStatedMs {
		return 0, 0, 0
	}
	return time.Duration(ms) * time.Millisecond, start, end
}
