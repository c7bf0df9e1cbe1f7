package header

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"

	"github.com/google/go-cmp/cmp"
)

// head returns the block of the given lines after a Host.
func head(lines ...string) string {
	return "Host: ads.example\r\n" + strings.Join(append(lines, ""), "\r\n") + "\r\n"
}

func TestScanRefusesWhatRFC9112Forbids(t *testing.T) {
	for _, tt := range []struct {
		name, raw string
		rule      Rule
		field     string
	}{
		{"space before the colon", head("Content-Length : 3"), RuleNameBlank, "Content-Length "},
		{"space before the colon of Transfer-Encoding", head("Transfer-Encoding : chunked"), RuleNameBlank, "Transfer-Encoding "},
		{"tab before the colon", head("X-A\t: 1"), RuleNameBlank, "X-A\t"},
		{"space in a name", head("Foo Bar: 1"), RuleNameBlank, "Foo Bar"},
		{"name that is no token", head("X(A): 1"), RuleName, "X(A)"},
		{"NUL in a name", head("X\x00A: 1"), RuleName, "X\x00A"},
		{"eight bits in a name", head("X\xc3\xa9: 1"), RuleName, "X\xc3\xa9"},
		{"name of control bytes", head("\x01: 1"), RuleName, "\x01"},
		{"empty name", head(": 1"), RuleEmptyName, ""},
		{"no colon", head("nonsense"), RuleNoColon, "nonsense"},
		{"no colon, LF", head("nonsense\nX-A: 1"), RuleNoColon, "nonsense"},
		{"no colon, more words", head("utter nonsense"), RuleNameBlank, "utter nonsense"},
		{"blank before the first line", " Host: ads.example\r\n\r\n", RuleFold, ""},
		{"obs-fold", head("X-A: 1", " 2"), RuleFold, "X-A"},
		{"obs-fold with TAB", head("X-A: 1", "\t2"), RuleFold, "X-A"},
		{"obs-fold in Transfer-Encoding", head("Transfer-Encoding:", " chunked"), RuleFold, "Transfer-Encoding"},
		{"line of blanks", head("X-A: 1", " "), RuleFold, "X-A"},
		{"LF after Host", "Host: ads.example\nX-A: 1\r\n\r\n", RuleBareLF, "Host"},
		{"LF only", "Host: ads.example\n\n", RuleBareLF, "Host"},
		{"LF as empty line", "Host: ads.example\r\n\n", RuleBareLF, ""},
		{"LF before CRLFCRLF", "Host: ads.example\r\nX-A: 1\n\r\n\r\n", RuleBareLF, "X-A"},
		{"CR in a value", head("X-A: 1\r2"), RuleBareCR, "X-A"},
		{"CR CR LF", head("X-A: 1\r"), RuleBareCR, "X-A"},
		{"CR as a line", "Host: ads.example\r\n\rX-A: 1\r\n\r\n", RuleBareCR, ""},
		{"NUL in a value", head("X-A: 1\x002"), RuleValue, "X-A"},
		{"DEL in a value", head("X-A: 1\x7f2"), RuleValue, "X-A"},
		{"escape in a long value", head("X-A: 1234567890123456789012345\x1b[0m"), RuleValue, "X-A"},
		{"VTAB before chunked", head("Transfer-Encoding: \x0bchunked"), RuleValue, "Transfer-Encoding"},
		{"no end", "Host: ads.example\r\n", RuleUnterminated, ""},
		{"cut in a value", "Host: ads.exam", RuleUnterminated, "Host"},
		{"cut after CR", "Host: ads.example\r", RuleUnterminated, "Host"},
		{"cut in a name", "Host: ads.example\r\nX-A", RuleUnterminated, ""},
		{"cut after the colon", "Host: ads.example\r\nX-A:", RuleUnterminated, "X-A"},
		{"cut before the value", "Host: ads.example\r\nX-A: ", RuleUnterminated, "X-A"},
		{"cut in the empty line", "Host: ads.example\r\n\r", RuleUnterminated, ""},
		{"bytes after the end", head() + "X", RuleUnterminated, ""},
		{"fields after the end", head() + head(), RuleUnterminated, ""},

		{"no Host", "X-A: 1\r\n\r\n", RuleHostMissing, ""},
		{"nothing at all", "", RuleHostMissing, ""},
		{"only the empty line", "\r\n", RuleHostMissing, ""},
		{"two Hosts", head("Host: ads.example"), RuleRepeated, "Host"},
		{"two Hosts, one empty", "Host:\r\nhost: a\r\n\r\n", RuleRepeated, "host"},
		{"junk Host", "Host: a/b?c@d\r\n\r\n", RuleHost, "Host"},
		{"Host with a blank", "Host: a b\r\n\r\n", RuleHost, "Host"},
		{"Host with a port that is none", "Host: a:asd\r\n\r\n", RuleHost, "Host"},
		{"Host with a port over 65535", "Host: a:65536\r\n\r\n", RuleHost, "Host"},
		{"Host with a signed port", "Host: a:+80\r\n\r\n", RuleHost, "Host"},
		{"Host with two ports", "Host: a:80:80\r\n\r\n", RuleHost, "Host"},
		{"port without a host", "Host: :80\r\n\r\n", RuleHost, "Host"},
		{"dot without a host", "Host: .\r\n\r\n", RuleHost, "Host"},
		{"Host with a user", "Host: me@a\r\n\r\n", RuleHost, "Host"},
		{"Host that is half an address", "Host: [::1\r\n\r\n", RuleHost, "Host"},
		{"Host that is an address without brackets", "Host: ::1\r\n\r\n", RuleHost, "Host"},
		{"Host with bytes after the brackets", "Host: [::1]x\r\n\r\n", RuleHost, "Host"},
		{"Host with a zone", "Host: [fe80::1%25eth0]\r\n\r\n", RuleHost, "Host"},
		{"Host with IPv4 in brackets", "Host: [127.0.0.1]\r\n\r\n", RuleHost, "Host"},
		{"Host with colons in brackets", "Host: [:::::]\r\n\r\n", RuleHost, "Host"},
		{"Host with half an escape", "Host: a%4\r\n\r\n", RuleHost, "Host"},
		{"eight bits in Host", "Host: \xc3\xa9\r\n\r\n", RuleHost, "Host"},

		{"equal Content-Lengths", head("Content-Length: 3", "Content-Length: 3"), RuleRepeated, "Content-Length"},
		{"two Content-Lengths", head("Content-Length: 3", "content-length: 4"), RuleRepeated, "content-length"},
		{"Content-Length as a list", head("Content-Length: 3, 3"), RuleLength, "Content-Length"},
		{"Content-Length with a sign", head("Content-Length: +3"), RuleLength, "Content-Length"},
		{"negative Content-Length", head("Content-Length: -1"), RuleLength, "Content-Length"},
		{"hexadecimal Content-Length", head("Content-Length: 0x3"), RuleLength, "Content-Length"},
		{"empty Content-Length", head("Content-Length:"), RuleLength, "Content-Length"},
		{"Content-Length in two words", head("Content-Length: 3 3"), RuleLength, "Content-Length"},
		{"Content-Length over 64 bits", head("Content-Length: 18446744073709551617"), RuleLength, "Content-Length"},

		{"unknown coding", head("Transfer-Encoding: xchunked"), RuleEncoding, "Transfer-Encoding"},
		{"identity", head("Transfer-Encoding: identity"), RuleEncoding, "Transfer-Encoding"},
		{"identity with Content-Length", head("Content-Length: 3", "Transfer-Encoding: identity"), RuleEncoding, "Transfer-Encoding"},
		{"chunked, identity", head("Transfer-Encoding: chunked, identity"), RuleEncoding, "Transfer-Encoding"},
		{"gzip, chunked", head("Transfer-Encoding: gzip, chunked"), RuleEncoding, "Transfer-Encoding"},
		{"empty coding", head("Transfer-Encoding:"), RuleEncoding, "Transfer-Encoding"},
		{"quoted coding", head(`Transfer-Encoding: "chunked"`), RuleEncoding, "Transfer-Encoding"},
		{"chunked twice", head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), RuleRepeated, "Transfer-Encoding"},
		{"chunked, chunked", head("Transfer-Encoding: chunked, chunked"), RuleEncoding, "Transfer-Encoding"},
		{"Content-Length, then chunked", head("Content-Length: 3", "Transfer-Encoding: chunked"), RuleBothFramings, ""},
		{"chunked, then Content-Length", head("Transfer-Encoding: chunked", "Content-Length: 0"), RuleBothFramings, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var f RequestFields
			err := f.Scan([]byte(tt.raw))
			var refused *Error
			testsupport.MustTrue(t, errors.As(err, &refused), "Scan(%q) = %v, want an *Error", tt.raw, err)
			want := (Error{Rule: tt.rule, Field: tt.field})
			testsupport.True(t, *refused == want, "Scan(%q) = %+v (%v), want %+v (%v)", tt.raw, *refused, refused, want, &want)
			testsupport.True(t, !refused.TooLarge(), "TooLarge: no limit was exceeded")
		})
	}
}

func TestScanAcceptsWhatRFC9112Allows(t *testing.T) {
	type field struct{ Name, Value string }
	for _, tt := range []struct {
		name, raw string
		want      []field // after Host
	}{
		{"no blank after the colon", head("X-A:1"), []field{{"X-A", "1"}}},
		{"blanks around the value", head("X-A: \t 1 2\t "), []field{{"X-A", "1 2"}}},
		{"TAB inside the value", head("X-A: 1234567\t8\t9"), []field{{"X-A", "1234567\t8\t9"}}},
		{"empty value", head("X-A:", "X-B: ", "X-C: \t "), []field{{"X-A", ""}, {"X-B", ""}, {"X-C", ""}}},
		{"eight bits in the value", head("X-A: Z\xfcrich \xff"), []field{{"X-A", "Z\xfcrich \xff"}}},
		{"colon in the value", head("X-A: b: c"), []field{{"X-A", "b: c"}}},
		{"every byte of a token", head("!#$%&'*+-.^_`|~09azAZ: 1"), []field{{"!#$%&'*+-.^_`|~09azAZ", "1"}}},
		{"repeated fields", head("X-A: 1", "x-a: 2"), []field{{"X-A", "1"}, {"x-a", "2"}}},
		{"chunked after TAB", head("Transfer-Encoding:\tchunked"), []field{{"Transfer-Encoding", "chunked"}}},
		{"chunked in capitals", head("TRANSFER-ENCODING: Chunked "), []field{{"TRANSFER-ENCODING", "Chunked"}}},
		{"Content-Length with zeros", head("Content-Length: 007"), []field{{"Content-Length", "007"}}},
		{"value of each length", head("X-A: 123456", "X-A: 1234567", "X-A: 12345678", "X-A: 123456789"),
			[]field{{"X-A", "123456"}, {"X-A", "1234567"}, {"X-A", "12345678"}, {"X-A", "123456789"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var f RequestFields
			testsupport.NoError(t, f.Scan([]byte(tt.raw)))
			var got []field
			for _, fl := range f.Fields()[1:] {
				got = append(got, field{string(fl.Name), string(fl.Value)})
			}
			testsupport.Equal(t, cmp.Diff(tt.want, got), "", "fields after Host (-want +got):\n%s")
		})
	}
}

func TestScanFindsTheFieldsThatTheProxyNeeds(t *testing.T) {
	f := RequestFields{TimeoutName: "X-Budget"}
	mustScan(t, &f, head("content-type: application/json", "CONTENT-ENCODING: gzip", "Content-Length: 17", "user-agent: phone",
		"TE: trailers", "X-Bundle: 70", "x-budget: 80", "X-Budget: 90", "x-adbuffer-ssp: openx", "X_Adbuffer_Ssp: other", "X-Env: prod", "X-Env: test"))
	timeout, timeouts := f.Timeout()
	ssp, ssps := f.SSP()
	env, hasEnv := f.Lookup("x-env")
	_, hasNone := f.Lookup("X-En")
	type fields struct {
		Host, Type, Encoding, Agent, Timeout, SSP, Env string
		Length                                         int64
		Timeouts, SSPs                                 int
		Chunked, HasEnv, HasNone, Trailers             bool
	}
	got := fields{string(f.Host()), string(f.contentType), string(f.ContentEncoding()), string(f.userAgent), string(timeout),
		string(ssp), string(env), f.ContentLength(), timeouts, ssps, f.Chunked(), hasEnv, hasNone, f.takesTrailers}
	want := fields{"ads.example", "application/json", "gzip", "phone", "80", "openx", "prod", 17, 2, 1, false, true, false, false}
	testsupport.Equal(t, cmp.Diff(want, got), "", "-want +got:\n%s")
}

func TestScanForgetsTheRequestBefore(t *testing.T) {
	f := RequestFields{TimeoutName: "X-Budget"}
	mustScan(t, &f, head("X-A: named", "Content-Type: a", "Content-Encoding: b", "Content-Length: 1", "User-Agent: c", "X-Budget: 1",
		"X-Adbuffer-Ssp: d", "X-Forwarded-For: 192.0.2.1", "X-Device-IP: 192.0.2.1", "Connection: X-A"))
	mustScan(t, &f, head("X-A: 1"))
	fresh := RequestFields{TimeoutName: "X-Budget"}
	mustScan(t, &fresh, head("X-A: 1"))
	f.options.names = fresh.options.names // unused beyond n
	testsupport.Equal(t, cmp.Diff(fresh, f, cmp.AllowUnexported(RequestFields{}, Field{}, connectionOptions{}, requestID{})), "", "a used RequestFields differs from a new one (-new +used):\n%s")

	f.Reset()
	if len(f.Fields()) != 0 || f.Host() != nil || f.ContentLength() != -1 || f.raw != nil {
		t.Errorf("after Reset: %d fields, Host %q, Content-Length %d", len(f.Fields()), f.Host(), f.ContentLength())
	}
	kept := f.fields[:1]
	testsupport.True(t, kept[0].Name == nil, "Reset keeps the bytes of %q", kept[0].Name)
	testsupport.Equal(t, f.TimeoutName, "X-Budget", "Reset dropped the settings: %v")
}

func TestScanOfHTTP10NeedsNoHostAndRefusesChunked(t *testing.T) {
	f := RequestFields{HTTP10: true}
	for _, raw := range []string{"", "\r\n", "X-A: 1\r\n\r\n"} {
		err := f.Scan([]byte(raw))
		testsupport.True(t, err == nil, "Scan(%q) = %v", raw, err)
		testsupport.True(t, f.Host() == nil, "Scan(%q): Host is %q", raw, f.Host())
	}
	wantRule(t, f.Scan([]byte(head("Transfer-Encoding: chunked"))), RuleEncoding)
	wantRule(t, f.Scan([]byte(head("Host: b"))), RuleRepeated)
}

func TestScanLimitsFields(t *testing.T) {
	var f RequestFields
	mustScan(t, &f, head(slices.Repeat([]string{"X-A: 1"}, maxFields-1)...))
	err := f.Scan([]byte(head(slices.Repeat([]string{"X-A: 1"}, maxFields)...)))
	wantRule(t, err, RuleTooManyFields)
	e, ok := errors.AsType[*Error](err)
	testsupport.True(t, ok && e.TooLarge() && e.Limit == maxFields, "%v is no error about the limit", err)
}

func TestScanLimitsWhatConnectionNames(t *testing.T) {
	var f RequestFields
	names := strings.Repeat("X-A,", maxOptions)
	mustScan(t, &f, head("Connection: close, Keep-Alive, te, "+names))
	wantRule(t, f.Scan([]byte(head("Connection: "+names, "Connection: X-B"))), RuleTooManyOptions)
}

func TestErrorShowsNothingOfTheRequestButAShortName(t *testing.T) {
	var f RequestFields
	for raw, want := range map[string]string{
		head("X-Secret: hun\x00ter2"):                   `header field "X-Secret": control byte in the value`,
		head("Foo\x1b[2J Bar: 1"):                       `header field "Foo\x1b[2J Bar": the name has a byte that is not allowed in names`,
		head(strings.Repeat("n", 100) + " : 1"):         `header field "` + strings.Repeat("n", 32) + `": blank in or after the name`,
		"Host: a\r\n":                                   `header: it does not end with one empty line`,
		head("Connection: " + strings.Repeat("a,", 99)): `header field "Connection": it names more fields than the limit of 16`,
		head(strings.Repeat("X-A: 1\r\n", 200)):         `header: more fields than the limit of 128`,
	} {
		err := f.Scan([]byte(raw))
		testsupport.True(t, err != nil && err.Error() == want, "Scan(%.40q) = %v, want %s", raw, err, want)
	}
}

func mustScan(t testing.TB, f *RequestFields, raw string) {
	t.Helper()
	err := f.Scan([]byte(raw))
	testsupport.MustTrue(t, err == nil, "Scan(%q) = %v", raw, err)
}

func wantRule(t *testing.T, err error, rule Rule) {
	t.Helper()
	var refused *Error
	testsupport.True(t, errors.As(err, &refused) && refused.Rule == rule, "error is %v, want rule %q", err, rule)
}
