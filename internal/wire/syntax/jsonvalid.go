package syntax

import "bytes"

// MaxJSONDepth is how deep a document that ValidJSON accepts may nest. Parsers limit the depth (.NET to 64, others to
// 100 to 1000). With the three levels of an envelope around it, all of them can parse such a document. Bid responses
// nest about ten levels deep.
const MaxJSONDepth = 60

// ValidJSON reports whether b, which must be UTF-8, is one JSON value that every parser accepts, however strict. RFC
// 8259 leaves some choices to parsers. In an envelope of several SSPs' responses, a body that the client's parser
// refuses would make the other responses unreadable too. So ValidJSON refuses:
//
//   - Nesting deeper than MaxJSONDepth.
//   - Two equal keys in an object, even in two spellings. Go's encoding/json/v2 refuses them.
//   - More than MaxJSONKeys keys, since ValidJSON must remember them.
//   - An escaped surrogate without its other half, which is not a character. Rust, Go v2 and Python's UTF-8 encoder
//     refuse it.
//   - Numbers that some parsers refuse; see fitsAllParsers.
//
// ValidJSON takes less than half the time of json.Valid.
func ValidJSON(b []byte) bool {
	k := keySets.Get().(*keys)
	defer keySets.Put(k)
	k.hashes = k.hashes[:0]
	end := skipValue(b, SkipJSONBlanks(b, 0), 0, MaxJSONDepth, k)
	return end >= 0 && SkipJSONBlanks(b, end) == len(b)
}

const (
	// MaxJSONNumberBytes is how long a number may be. float64 needs 17 digits.
	MaxJSONNumberBytes = 64
	// maxExponent bounds the powers of ten of the first and the last digit of a number with a fraction or an
	// exponent, so that a float64 can represent both digits.
	maxExponent = 307
)

// fitsAllParsers reports whether all parsers accept the size of a number. Go, Rust and other parsers refuse 1e400,
// simdjson refuses an integer of more than 64 bits, and Python an integer of 4301 digits.
func fitsAllParsers(number []byte) bool {
	if len(number) > MaxJSONNumberBytes {
		return false
	}
	digits := bytes.TrimPrefix(number, []byte{'-'})
	mantissa, power := digits, []byte(nil)
	if e := bytes.IndexAny(digits, "eE"); e >= 0 {
		mantissa, power = digits[:e], digits[e+1:]
	}
	whole, fraction, _ := bytes.Cut(mantissa, []byte{'.'})
	if len(whole) == len(digits) { // an integer without an exponent
		limit := "18446744073709551615"
		if len(digits) < len(number) {
			limit = "9223372036854775808"
		}
		return len(whole) < len(limit) || len(whole) == len(limit) && string(whole) <= limit
	}
	exponent, _ := ParseNumber(bytes.TrimLeft(power, "+-"), 10*maxExponent)
	if bytes.HasPrefix(power, []byte{'-'}) {
		exponent = -exponent
	}
	return exponent+len(whole)-1 <= maxExponent && exponent-len(fraction) >= -maxExponent
}
