package syntax

import (
	"bytes"
	"math/big"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"

	"golang.org/x/net/http/httpguts"
)

// seeds are parts of HTTP messages, valid and almost valid.
var seeds = []string{
	"", "0", "007", "200", "099", "600", "-1", "+1", "1 ", "00", "99999999999", "1152921504606846975", "1152921504606846976", "1152921504606846977", "9223372036854775808", "18446744073709551616", strings.Repeat("9", 40),
	"ff", "Keep-Alive", "x_a!#$%&'*+-.^_`|~", "na me", "name:", "\x00", "\x7f", "\x80", "\xe9",
	" a value\t", "a\rb", "a\nb", "\t", " ", "close", "a, Close ,b", ",,", "closed", "\"close\"", " ,\tclose\t,",
	"A: 1\r\nB: \r\nlong-Name:  two  words \r\n", "A: 1\nB: 2\r\n", "A: 1\r\n\r\n", ": 1\r\n", "A\r\n",
}

func addSeeds(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
}

// FuzzNumbers compares numbers with math/big, up to the limit.
func FuzzNumbers(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, v []byte) {
		isNumber := len(v) > 0 && strings.Trim(string(v), "0123456789") == ""
		for _, limit := range []int{0, 9, 1 << 30, MaxNumber} {
			want := 0
			if isNumber {
				exact, _ := new(big.Int).SetString(string(v), 10)
				if want = limit; exact.Cmp(big.NewInt(int64(limit))) < 0 {
					want = int(exact.Int64())
				}
			}
			n, ok := ParseNumber(v, limit)
			testsupport.True(t, n == want && ok == isNumber, "ParseNumber(%q, %d) = %d, %v; want %d, %v", v, limit, n, ok, want, isNumber)
		}
		n, isStatus := ParseNumber(v, MaxNumber)
		isStatus = isStatus && len(v) == 3 && 100 <= n && n < 600
		status, ok := ParseStatus(v)
		testsupport.True(t, ok == isStatus && (!ok || status == n), "ParseStatus(%q) = %d, %v", v, status, ok)
		for _, c := range v {
			want := strings.IndexByte("0123456789abcdef", c|0x20)
			if c < '0' || c > 'f' { // setting a bit above turns some control bytes into digits
				want = -1
			}
			testsupport.Equal(t, HexDigit(c), want, "HexDigit(%[2]q) = %[1]d", c)
		}
	})
}

// FuzzValues compares tokens, values and lists with net/http.
func FuzzValues(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, v []byte) {
		s := string(v)
		if got, want := IsToken(v), httpguts.ValidHeaderFieldName(s); got != want {
			t.Errorf("IsToken(%q) = %v", v, got)
		}
		if got, want := IsValue(v), httpguts.ValidHeaderFieldValue(s); got != want {
			t.Errorf("IsValue(%q) = %v", v, got)
		}
		control := bytes.IndexFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
		if control < 0 {
			control = len(v)
		}
		testsupport.Equal(t, ControlAt(v), control, "ControlAt(%[2]q) = %[1]d", v)
		trimmed := strings.Trim(s, " \t")
		if got := Trim(v); string(got) != trimmed {
			t.Errorf("Trim(%q) = %q", v, got)
		}
		if got, want := IsTrimmedValue(v), s == trimmed && control == len(v); got != want {
			t.Errorf("IsTrimmedValue(%q) = %v", v, got)
		}
		if got, want := IsVisible(v), control == len(v) && !strings.ContainsAny(s, " \t"); got != want {
			t.Errorf("IsVisible(%q) = %v", v, got)
		}
		var elements []string
		for e := range Elements(v) {
			elements = append(elements, string(e))
		}
		var want []string
		for e := range strings.SplitSeq(s, ",") {
			if e = strings.Trim(e, " \t"); e != "" {
				want = append(want, e)
			}
		}
		testsupport.True(t, strings.Join(elements, ",") == strings.Join(want, ",") && len(elements) == len(want), "Elements(%q) = %q, want %q", v, elements, want)
		for _, token := range append(want, "close") {
			listed := false
			for _, e := range want {
				listed = listed || asciiLower(e) == asciiLower(token)
			}
			got := HasToken(v, token)
			testsupport.True(t, got == listed, "HasToken(%q, %q) = %v", v, token, got)
		}
		for _, specific := range []string{"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"} {
			testsupport.True(t, asciiLower(s) != specific || IsConnectionSpecific(v), "IsConnectionSpecific(%q) = false", v)
		}
	})
}

// FuzzFields checks that each line that CutField reads and AppendField writes is read with the same
// result.
func FuzzFields(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, block []byte) {
		var again []byte
		for name, value := range Fields(block) {
			testsupport.MustTrue(t, !bytes.ContainsAny(name, ":") && bytes.Equal(Trim(value), value) && len(name) != 0, "%q has a field %q with the value %q", block, name, value)
			again = AppendField(again, name, value)
			found, ok := FindField(block, string(name))
			testsupport.MustTrue(t, ok && found != nil, "%q is not found in %q", name, block)
		}
		rest := again
		for name, value := range Fields(block) {
			n, v, next := CutField(rest)
			testsupport.MustTrue(t, bytes.Equal(n, name) && bytes.Equal(v, value), "the field %q: %q reads as %q: %q", name, value, n, v)
			rest = next
		}
		testsupport.MustTrue(t, len(rest) == 0, "%q is left", rest)
	})
}

func asciiLower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}
