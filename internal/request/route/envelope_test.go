package route

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/syntax"
)

// seal builds the envelope of entries, like parallel-all.
func seal(t testing.TB, entries []entry) []byte {
	t.Helper()
	b, bound := []byte(envelopeStart), envelopeOverhead
	for i := range entries {
		if i > 0 {
			b = append(b, ',')
		}
		before := len(b)
		b = entries[i].append(b)
		if got, most := len(b)-before+1, entries[i].bound(); got > most {
			t.Errorf("an entry takes %d bytes with its comma, over its bound of %d: %s", got, most, b[before:])
		}
		bound += entries[i].bound()
	}
	b = append(b, envelopeEnd...)
	testsupport.AtMost(t, len(b), bound, "the envelope has %d bytes, over its bound of %d", bound)
	return b
}

// opened is an envelope as a client reads it.
type opened struct {
	Results []struct {
		SSP         string          `json:"ssp"`
		Status      int             `json:"status"`
		Error       string          `json:"error"`
		MS          *int64          `json:"ms"`
		ContentType string          `json:"content_type"`
		Body        json.RawMessage `json:"body"`
		BodyBase64  *string         `json:"body_base64"`
	} `json:"results"`
}

func open(t testing.TB, envelope []byte) opened {
	t.Helper()
	testsupport.MustTrue(t, utf8.Valid(envelope) && json.Valid(envelope), "no valid JSON: %q", envelope)
	d := json.NewDecoder(bytes.NewReader(envelope))
	d.DisallowUnknownFields()
	var o opened
	err := d.Decode(&o)
	testsupport.MustTrue(t, err == nil, "%v: %q", err, envelope)
	return o
}

// response is an entry for a response with the given type, body and other fields.
func response(ssp, contentType, body, fields string) entry {
	e := entry{ssp: ssp, status: 200, took: 1500 * time.Microsecond}
	if contentType != "" {
		fields = "Content-Type: " + contentType + "\r\n" + fields
	}
	e.describe([]byte(fields), []byte(body))
	return e
}

func TestFormsOfBodiesInTheEnvelope(t *testing.T) {
	const (
		js     = "application/json"
		openRB = `{"id":"1","seatbid":[{"bid":[{"price":1.25}]}]}`
	)
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, tt := range []struct{ name, contentType, body, fields, want string }{
		{"JSON", js, openRB, "", `"body":` + openRB},
		{"JSON with parameters", "Application/JSON ; charset=utf-8", openRB, "", `"body":` + openRB},
		{"a suffix", "application/vnd.ads+json;v=1", "[1]", "", `"body":[1]`},
		{"no type's suffix", "+json", "[1]", "", `"body":"[1]"`},
		{"JSON lines", "application/jsonl", "[1]", "", `"body":"[1]"`},
		{"a scalar", js, " 1\n", "", `"body": 1` + "\n"},
		{"JSON, no type", "", openRB, "", `"body":` + quote(openRB)},
		{"JSON, another type", "text/plain; application/json", "[1]", "", `"body":"[1]"`},
		{"VAST", "text/xml", `<VAST version="4.2"><Ad/></VAST>`, "", `"body":"<VAST version=\"4.2\"><Ad/></VAST>"`},
		{"no JSON", js, `{"a":1,}`, "", `"body":"{\"a\":1,}"`},
		{"two documents", js, `{} {}`, "", `"body":"{} {}"`},
		{"cut off", js, `{"a":"`, "", `"body":"{\"a\":\""`},
		{"a byte order mark", js, "\uFEFF{}", "", "\"body\":\"\uFEFF{}\""},
		{"control bytes", "text/plain", "\x00\x1f\x7f\b\f\n\r\t", "", `"body":"\u0000\u001f` + "\x7f" + `\u0008\u000c\n\r\t"`},
		{"beyond ASCII", "text/plain", "é€😀\u2028", "", "\"body\":\"é€😀\u2028\""},
		{"no UTF-8", "text/plain", "a\xff", "", `"body_base64":"Yf8="`},
		{"no UTF-8 in JSON", js, "\"\xff\"", "", `"body_base64":"Iv8i"`},
		{"half a character", js, "\"\xe2\x82\"", "", `"body_base64":"IuKCIg=="`},
		{"a surrogate in UTF-8", js, "\"\xed\xa0\x80\"", "", `"body_base64":"Iu2ggCI="`},
		{"gzip", js, "\x1f\x8b", "Content-Encoding: gzip\r\n", `"body_base64":"H4s="`},
		{"a coding that does not show", js, "{}", "content-encoding: br\r\n", `"body_base64":"e30="`},
		{"an empty coding", js, "{}", "Content-Encoding:\r\n", `"body_base64":"e30="`},
		{"empty", js, "", "Content-Encoding: gzip\r\n", ""},
		{"as deep as may be", js, deep(syntax.MaxJSONDepth), "", `"body":` + deep(syntax.MaxJSONDepth)},
		{"a lone surrogate", js, `["\ud800"]`, "", `"body":` + quote(`["\ud800"]`)},
		{"half a pair, then another escape", js, `["\ud83d\u0041"]`, "", `"body":` + quote(`["\ud83d\u0041"]`)},
		{"the second half alone", js, `{"\udc00":1}`, "", `"body":` + quote(`{"\udc00":1}`)},
		{"a pair", js, `["\ud83d\uDE00"]`, "", `"body":["\ud83d\uDE00"]`},
		{"a number beyond float64", js, `[1e400]`, "", `"body":"[1e400]"`},
		{"a number beyond float64, without an exponent", js, strings.Repeat("9", 400), "", `"body":"` + strings.Repeat("9", 400) + `"`},
		{"a number too small for float64", js, `[1e-400]`, "", `"body":"[1e-400]"`},
		{"a whole number beyond 64 bits", js, `[18446744073709551616]`, "", `"body":"[18446744073709551616]"`},
		{"the largest of 64 bits", js, `[18446744073709551615,-9223372036854775808]`, "", `"body":[18446744073709551615,-9223372036854775808]`},
		{"a key twice", js, `{"a":1,"b":2,"a":3}`, "", `"body":` + quote(`{"a":1,"b":2,"a":3}`)},
		{"a key twice, in two spellings", js, `{"a":1,"\u0061":3}`, "", `"body":` + quote(`{"a":1,"\u0061":3}`)},
		{"a key in two objects", js, `{"a":{"a":1},"b":[{"a":2},{"a":3}]}`, "", `"body":{"a":{"a":1},"b":[{"a":2},{"a":3}]}`},
		{"as many keys as may be", js, manyKeys(syntax.MaxJSONKeys), "", `"body":` + manyKeys(syntax.MaxJSONKeys)},
		{"too many keys", js, manyKeys(syntax.MaxJSONKeys + 1), "", `"body":` + quote(manyKeys(syntax.MaxJSONKeys+1))},
		{"many keys, one object after the other", js, "[" + manyKeys(syntax.MaxJSONKeys) + "," + manyKeys(syntax.MaxJSONKeys) + "]", "", `"body":[` + manyKeys(syntax.MaxJSONKeys) + "," + manyKeys(syntax.MaxJSONKeys) + "]"},
		{"too deep", js, deep(syntax.MaxJSONDepth + 1), "", `"body":` + quote(deep(syntax.MaxJSONDepth+1))},
		{"depth in a string", js, `["\"` + deep(100) + `"]`, "", `"body":["\"` + deep(100) + `"]`},
		{"a rival's entry", js, `{"x":1},{"ssp":"rival","error":"deadline","ms":1}`, "", `"body":` + quote(`{"x":1},{"ssp":"rival","error":"deadline","ms":1}`)},
		{"the end", js, `1}]}`, "", `"body":"1}]}"`},
		{"the end as text", "text/plain", `"}]}`, "", `"body":"\"}]}"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			envelope := seal(t, []entry{response("a", tt.contentType, tt.body, tt.fields), {ssp: "rival", status: 204}})
			expect := `{"results":[{"ssp":"a","status":200,"ms":1`
			if tt.contentType != "" {
				expect += `,"content_type":` + quote(tt.contentType)
			}
			if tt.want != "" {
				expect += "," + tt.want
			}
			want(t, "envelope", string(envelope), expect+`},{"ssp":"rival","status":204,"ms":0}]}`)
			o := open(t, envelope)
			testsupport.True(t, len(o.Results) == 2 && o.Results[1].SSP == "rival" && o.Results[1].Status == 204, "read as %+v", o)
		})
	}
}

// manyKeys is an object with n keys.
func manyKeys(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`"%d":0`, i)
	}
	return "{" + strings.Join(all, ",") + "}"
}

// A body as a string takes at most twice its length and 4 KB: control characters take six bytes
// each.
func TestBodyThatIsMostlyEscapesIsSentAsBase64(t *testing.T) {
	for _, tt := range []struct {
		name, contentType, body string
		form                    bodyForm
	}{
		{"control characters", "text/plain", strings.Repeat("\x00", 1<<16), binaryBody},
		{"control characters labelled as JSON", "application/json", strings.Repeat("\x01", 1<<16), binaryBody},
		{"a few", "text/plain", strings.Repeat("\x00", maxEscapes/4-1), textBody},
		{"one more", "text/plain", strings.Repeat("\x00", maxEscapes/4), binaryBody},
		{"quotes", "text/plain", strings.Repeat(`"`, 1<<16), textBody},
		{"line ends", "text/xml", strings.Repeat("\n", 1<<16), textBody},
	} {
		e := response("a", tt.contentType, tt.body, "")
		testsupport.Equal(t, e.form, tt.form, "%[2]s: form %[1]v", tt.name)
		const rest = 200 // the entry without the body
		if n := e.bound(); n > 2*len(tt.body)+maxEscapes+rest {
			t.Errorf("%s: %d bytes are reserved for a body of %d", tt.name, n, len(tt.body))
		}
		n := len(e.append(nil))
		testsupport.True(t, n <= e.bound(), "%s: the entry takes %d bytes, over its bound of %d", tt.name, n, e.bound())
	}
}

// quote writes a string like encoding/json, without the escapes for HTML.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// The content type also comes from the SSP, and may be invalid UTF-8.
func TestContentTypeCannotEscape(t *testing.T) {
	for contentType, expect := range map[string]string{
		`text/plain","body":"x`:    `text/plain","body":"x`,
		"text/\xffplain":           "text/\uFFFDplain",
		"text/plain;a=\"\\\"\tb\"": "text/plain;a=\"\\\"\tb\"",
	} {
		o := open(t, seal(t, []entry{response("a", contentType, "y", "")}))
		want(t, "type", o.Results[0].ContentType, expect)
		want(t, "body", string(o.Results[0].Body), `"y"`)
	}
}

func TestFirstContentTypeCounts(t *testing.T) {
	e := response("a", "text/plain", "{}", "Content-Type: application/json\r\n")
	want(t, "envelope", string(seal(t, []entry{e})), `{"results":[{"ssp":"a","status":200,"ms":1,"content_type":"text/plain","body":"{}"}]}`)
}

// FuzzEnvelope checks that the envelope is valid JSON for any bytes of the SSPs. It has one entry
// for each SSP, in order, and each body can be read from its entry.
func FuzzEnvelope(f *testing.F) {
	f.Add("application/json", []byte(`{"a":[1,2,{"b":"\u00e9"}]}`), "text/xml", []byte("<VAST/>"), byte(0))
	f.Add("application/json", []byte(`{},{"ssp":"s2","status":200}`), "application/json", []byte(`]}`), byte(1))
	f.Add("a/b+json", []byte("\"\xff\""), "\xff\"", []byte("\x00\x1f\u2028"), byte(2))
	f.Add("application/json", []byte(strings.Repeat(`{"a":`, 70)+"1"+strings.Repeat("}", 70)), "", []byte(nil), byte(3))
	f.Add("application/json", []byte("\"\\ud800\""), "application/json", []byte(" 1e999 "), byte(7))
	f.Fuzz(func(t *testing.T, type1 string, body1 []byte, type2 string, body2 []byte, mix byte) {
		clean := strings.NewReplacer("\r", "", "\n", "", "\x00", "") // connections refuse these bytes
		fields := ""
		if mix&1 != 0 {
			fields = "Content-Encoding: x\r\n"
		}
		entries := []entry{
			response("s0", clean.Replace(type1), string(body1), fields),
			{ssp: "s1", err: "deadline", took: time.Duration(mix) * time.Millisecond},
			response("s2", clean.Replace(type2), string(body2), ""),
			{ssp: "s3", err: "not_waited", omitMS: true},
			response("s4", "application/json", string(body2), fields),
		}
		o := open(t, seal(t, entries))
		testsupport.MustEqual(t, len(o.Results), len(entries), "%d entries")
		for i, got := range o.Results {
			e := &entries[i]
			testsupport.MustTrue(t, got.SSP == fmt.Sprintf("s%d", i) && got.Error == e.err && got.Status == e.status && (got.MS == nil) == e.omitMS, "entry %d is %+v", i, got)
			testsupport.MustTrue(t, bytes.Equal(bodyOf(t, got.Body, got.BodyBase64, e), e.body), "entry %d: the body is %q %v, want %q", i, got.Body, got.BodyBase64, e.body)
		}
	})
}

// bodyOf returns the body that a client reads from an entry.
func bodyOf(t testing.TB, raw json.RawMessage, inBase64 *string, e *entry) []byte {
	switch e.form {
	case jsonBody:
		// The body is unchanged except for blanks around it.
		from := bytes.Index(e.body, raw)
		if from < 0 || len(bytes.Trim(e.body[:from], " \t\r\n")) > 0 || len(bytes.Trim(e.body[from+len(raw):], " \t\r\n")) > 0 {
			return raw
		}
		return e.body
	case textBody:
		var s string
		err := json.Unmarshal(raw, &s)
		testsupport.MustTrue(t, err == nil, "%v: %s", err, raw)
		return []byte(s)
	case binaryBody:
		b, err := base64.StdEncoding.DecodeString(*inBase64)
		testsupport.NoError(t, err)
		return b
	default:
		testsupport.MustTrue(t, raw == nil && inBase64 == nil, "a body without one: %s, %v", raw, inBase64)
		return nil
	}
}
