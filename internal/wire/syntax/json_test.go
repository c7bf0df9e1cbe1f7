package syntax

import (
	"bytes"
	"encoding/json"
	"math/big"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"adbuffer/internal/test/testsupport"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/google/go-cmp/cmp"
)

// FuzzJSONString compares AppendJSONString with encoding/json.
func FuzzJSONString(f *testing.F) {
	f.Add([]byte("\uFFFD, which is whole"))
	f.Add([]byte("a\"\\\x00\x1f\x7f\xffé\u2028😀\xed\xa0\x80"))
	f.Fuzz(func(t *testing.T, s []byte) {
		got := AppendJSONString([]byte("before"), s)
		testsupport.Equal(t, len(got)-len("before"), JSONStringLen(s), "%[2]q takes %[1]d bytes", s)
		testsupport.True(t, utf8.Valid(got), "%q is not UTF-8", got)
		var back, expect string
		if err := json.Unmarshal(bytes.TrimPrefix(got, []byte("before")), &back); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		quoted, err := json.Marshal(string(s))
		testsupport.NoError(t, err)
		testsupport.NoError(t, json.Unmarshal(quoted, &expect))
		diff := cmp.Diff(expect, back)
		testsupport.True(t, diff == "", "%q (-want +got):\n%s", s, diff)
	})
}

func TestEscapes(t *testing.T) {
	for text, want := range map[string]struct {
		r rune
		n int
	}{
		`\"`: {'"', 2}, `\\`: {'\\', 2}, `\/`: {'/', 2}, `\b`: {'\b', 2}, `\f`: {'\f', 2}, `\n`: {'\n', 2}, `\r`: {'\r', 2}, `\t`: {'\t', 2},
		`\u00e9`: {'é', 6}, `\uFffd`: {0xfffd, 6}, `\ud83d\ude00`: {'😀', 12},
		`\ud83d`: {}, `\ud83d\n`: {}, `\ud83d\u00e9`: {}, `\ude00\ud83d`: {}, `\u00g9`: {}, `\u00e`: {}, `\x`: {}, `\`: {},
	} {
		r, n := JSONEscape([]byte(text))
		testsupport.True(t, r == want.r && n == want.n, "%s: %q of %d bytes, want %q of %d", text, r, n, want.r, want.n)
	}
	for text, want := range map[string]int{`"\ud83d"`: 8, `"\ud83d\n" `: 10, `"\ud83"`: -1, `"\x"`: -1, `"a`: -1, `"😀"`: 6} {
		testsupport.Equal(t, SkipJSONString([]byte(text), 0), want, "%[2]s ends at %[1]d", text)
	}
}

// SkipJSON accepts a document that is cut at each byte, or has each of its bytes replaced, if and only if encoding/json does.
func TestSkipJSON(t *testing.T) {
	t.Parallel()
	document := []byte("{\"id\":\"1\", \"eight888\" : [0,-1.5e+9 ,10, 0.25,7],\n\"esc\\\"aped\":\"\\u00e9 and \\\\\",\"a string of several words\":{ },\"b\":[ ],\"c\":[true,false ,null, {\"d\":{\"e\":[[]]}}]\t}")
	accepts := func(b []byte) {
		end := SkipJSON(b, 0, 0, 64)
		got := end >= 0 && SkipJSONBlanks(b, end) == len(b)
		testsupport.True(t, got == json.Valid(b), "%q is accepted: %v", b, got)
	}
	accepts(document)
	for i := range document {
		accepts(document[:i])
		for _, c := range []byte("\"\\{}[],: \n\x00\x1f\xff019-+.eEtu") {
			changed := bytes.Clone(document)
			changed[i] = c
			accepts(changed)
		}
	}
}

// FuzzValidJSON compares ValidJSON with two parsers of Go and with counts of levels, keys and
// digits. One of the parsers is as strict as any known one.
func FuzzValidJSON(f *testing.F) {
	for _, s := range documents(f) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		depth, deepest, keys, fits := 0, 0, 0, true
		for {
			token, err := d.Token()
			if err != nil {
				break
			}
			switch token := token.(type) {
			case json.Delim:
				if token == '{' || token == '[' {
					depth++
					deepest = max(deepest, depth)
				} else {
					depth--
				}
			case json.Number:
				fits = fits && fitsEverywhere(string(token))
			case string:
				keys++
			}
		}
		if keys > MaxJSONKeys {
			return
		}
		// The caller of ValidJSON checks UTF-8.
		want := json.Valid(b) && jsontext.Value(b).IsValid(jsontext.AllowInvalidUTF8(!utf8.Valid(b))) && deepest <= MaxJSONDepth && fits
		got := ValidJSON(b)
		testsupport.True(t, got == want || !utf8.Valid(b), "%q: %v, want %v at a depth of %d, numbers fit: %v", b, got, want, deepest, fits)
		var v any
		err := json.Unmarshal(b, &v)
		testsupport.True(t, !ValidJSON(b) || err == nil, "%q: %v", b, err)
	})
}

// fitsEverywhere computes exactly whether every parser can hold a number. An integer must fit into
// 64 bits. The first and last digit of any other number must fit into float64. Leading zeros of a
// fraction count as digits.
func fitsEverywhere(s string) bool {
	if len(s) > MaxJSONNumberBytes {
		return false
	}
	if !strings.ContainsAny(s, ".eE") {
		n, ok := new(big.Int).SetString(s, 10)
		return ok && (n.IsInt64() || n.IsUint64())
	}
	mantissa, exponent, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(s, "-")), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	e := new(big.Int)
	if exponent != "" {
		e.SetString(exponent, 10)
	}
	first := new(big.Int).Add(e, big.NewInt(int64(len(whole)-1)))
	last := new(big.Int).Sub(e, big.NewInt(int64(len(fraction))))
	return first.Cmp(big.NewInt(maxExponent)) <= 0 && last.Cmp(big.NewInt(-maxExponent)) >= 0
}

// documents are JSON, almost JSON, and JSON that parsers treat differently. Package route uses them
// too.
func documents(tb testing.TB) (all []string) {
	b, err := os.ReadFile("testdata/documents.txt")
	testsupport.NoError(tb, err)
	for line := range strings.Lines(string(b)) {
		s, err := strconv.Unquote(strings.TrimSpace(line))
		testsupport.MustTrue(tb, err == nil, "%s: %v", line, err)
		all = append(all, s)
	}
	return all
}
