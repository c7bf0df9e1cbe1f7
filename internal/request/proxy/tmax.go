package proxy

import (
	"bytes"
	"time"

	"adbuffer/internal/wire/openrtb"
)

// tmax returns the tmax of r's body if that is a JSON object, perhaps in gzip, and notes its position in an
// uncompressed body for the SSPs.
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

// codedTmax returns the tmax of a body in gzip, as far as it is decoded: to max_body_bytes at most, as many as the
// body may have without a coding.
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

// maxTmaxScan bounds how far into a body tmax is searched: as far as the largest body that
// server.max_body_bytes allows by default.
const maxTmaxScan = 256 << 10

var (
	tmaxKey  = []byte(`"tmax"`)
	findTmax = openrtb.NewFinder(openrtb.Path{"tmax"})
)

// scanTmax finds the top-level key "tmax" of a JSON object. It returns its value, rounded down to milliseconds, and the
// offsets of that in the body, body[start:end]. start is end if there is none, or if it is no number whose whole part is
// from 1 to 600000. It finds none in a body that spells the key with escapes alone.
//
// If there are several keys, the first one counts. Parsers differ here (RFC 8259, section 4; most
// take the last). Only the first can be found without reading to the end of the body.
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
