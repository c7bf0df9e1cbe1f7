package proxy

import (
	"bytes"
	"time"

	"adbuffer/internal/wire/openrtb"
)

// ignoredTmax says why the deadline does not follow from the body's tmax. It is 0 if it does, or if there is no body.
type ignoredTmax uint8

const (
	tmaxAbsent ignoredTmax = iota + 1
	tmaxOff
	tmaxLonger
	tmaxEncoding
	tmaxCoding
	tmaxMediaType
	tmaxBeyond
	tmaxSyntax
	tmaxValue
)

var ignoredTmaxTexts = [...]struct{ name, text string }{
	0:             {"", ""},
	tmaxAbsent:    {"absent", "the body has no member tmax"},
	tmaxOff:       {"off", "deadline.openrtb_tmax is false"},
	tmaxLonger:    {"longer", "another limit is shorter"},
	tmaxEncoding:  {"encoding", "the body has another content coding than gzip and zstd"},
	tmaxCoding:    {"undecodable", "the body's gzip or zstd cannot be decoded"},
	tmaxMediaType: {"media_type", "the body is protobuf"},
	tmaxBeyond:    {"beyond", "it is not within the first 256 KiB or server.max_body_bytes of the body"},
	tmaxSyntax:    {"syntax", "the body is not a JSON object"},
	tmaxValue:     {"value", "it is not a number from 1 to 600000"},
}

// String returns the word that the access log uses.
func (i ignoredTmax) String() string { return ignoredTmaxTexts[i].name }

// text returns the reason as a clause for people, in which "it" is tmax.
func (i ignoredTmax) text() string { return ignoredTmaxTexts[i].text }

// tmax returns the tmax of r's body, if the body is a JSON object, possibly in gzip or zstd. If there is none, why is not 0. For
// an uncompressed body it also stores the position of tmax, for SSPs whose tmax is rewritten.
func tmax(r *request) (value time.Duration, why ignoredTmax, f *refusal) {
	coding := r.fields.ContentEncoding()
	switch {
	case coding == nil:
		value, r.ssp.TmaxStart, r.ssp.TmaxEnd, why = scanTmax(r.body)
		if why == tmaxAbsent && openrtb.IsProtobuf(r.fields.ContentType()) {
			why = tmaxMediaType
		}
		return value, why, nil
	case r.opts.Deadline.OpenRTBTmax && r.fields.Codings() == 1 && openrtb.CanDecode(coding):
		return codedTmax(r)
	}
	return 0, tmaxEncoding, nil
}

// codedTmax returns the tmax of a body in gzip or zstd. It decodes at most max_body_bytes, which is also the limit for a body
// without a coding.
func codedTmax(r *request) (time.Duration, ignoredTmax, *refusal) {
	d := r.decoder()
	defer d.Release()
	limit := min(r.opts.MaxBodyBytes, maxTmaxScan)
	document, err := d.Decode(r.fields.ContentEncoding(), r.body, limit)
	if f := r.undecoded(err); f != nil {
		return 0, 0, f
	}
	value, _, _, why := scanTmax(document)
	switch {
	case why != tmaxAbsent && why != tmaxSyntax:
	case err != nil:
		why = tmaxCoding
	case len(document) > limit:
		why = tmaxBeyond
	}
	return value, why, nil
}

// maxTmaxScan bounds how far into a body tmax is searched. It is the default of server.max_body_bytes.
const maxTmaxScan = 256 << 10

var (
	tmaxKey  = []byte(`"tmax"`)
	findTmax = openrtb.NewFinder(openrtb.Path{"tmax"})
)

// scanTmax finds the top-level member "tmax" of a JSON object. It returns the value, rounded down to milliseconds, whose
// text is body[start:end]. start equals end, and why is not 0, if the body has no such member, or if its value is not a
// number whose whole part is from 1 to 600000. scanTmax does not find a member whose name is written with escapes.
//
// If the body has the member more than once, scanTmax returns the first, since only the first can be found without
// reading to the end of the body. Parsers differ here: RFC 8259, section 4; most take the last.
func scanTmax(body []byte) (value time.Duration, start, end int, why ignoredTmax) {
	missing := tmaxAbsent
	if len(body) > maxTmaxScan {
		body, missing = body[:maxTmaxScan], tmaxBeyond
	}
	if !bytes.Contains(body, tmaxKey) {
		return 0, 0, 0, missing // this check costs a tenth of a scan
	}
	start, end, unreadable := findTmax.Find(body)
	switch {
	case start < end:
	case unreadable != openrtb.Readable && missing == tmaxAbsent:
		return 0, 0, 0, tmaxSyntax
	default:
		return 0, 0, 0, missing
	}
	ms, ok := openrtb.Floor(body[start:end], maxStatedMs)
	if !ok || ms < minStatedMs {
		return 0, 0, 0, tmaxValue
	}
	return time.Duration(ms) * time.Millisecond, start, end, 0
}
