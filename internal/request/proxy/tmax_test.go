package proxy

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// FuzzTmax has bodies that are JSON.
func TestNoTmaxIsFoundInABodyThatIsNoJSON(t *testing.T) {
	for name, body := range map[string]string{
		"a plus":                `{"tmax":+300}`,
		"leading zero":          `{"tmax":0300}`,
		"two numbers":           `{"tmax":300 400}`,
		"no value":              `{"tmax":}`,
		"cut behind the digits": `{"tmax":300`,
		"cut before them":       `{"tmax":`,
		"cut in the key":        `{"tma`,
		"cut in a string":       `{"x":"`,
		"cut in a nested value": `{"x":[1`,
		"no comma":              `{"x":1 "tmax":300}`,
		"no colon":              `{"x" 1,"tmax":300}`,
		"no key":                `{,"tmax":300}`,
		"behind the object":     `{"x":1},"tmax":300}`,
		"nothing":               ``,
		"a bracket":             `{`,
		"not JSON":              `tmax=300`,
		"compressed":            "\x1f\x8b{\"tmax\":300}",
	} {
		got, start, end, why := scanTmax([]byte(body))
		testsupport.True(t, got == 0 && start == end && why != 0, "%s: %s: %v, from %d to %d, %v", name, body, got, start, end, why)
	}
}

func TestTmaxIsFoundWithinABoundedPartOfTheBody(t *testing.T) {
	body := func(at int) []byte {
		head, tail := `{"x":"`, `","tmax":300}`
		return []byte(head + strings.Repeat("x", at-len(head)-len(tail)) + tail)
	}
	if got, _, _, _ := scanTmax(body(maxTmaxScan)); got != 300*time.Millisecond {
		t.Errorf("is %v in a body of %d bytes", got, maxTmaxScan)
	}
	got, _, _, why := scanTmax(body(maxTmaxScan + 1))
	testsupport.True(t, got == 0 && why == tmaxBeyond, "is %v (%v) though it ends one byte behind what is searched", got, why)
}

// FuzzTmax compares the scan with encoding/json. In JSON both find the same value, if the parser
// takes the first key. In any other input the scan finds at most a number behind such a key.
func FuzzTmax(f *testing.F) {
	for _, seed := range []string{
		"\r\n {\t\"tmax\" \n:\r 300\t}", `{"id":"1","imp":[{"banner":{"w":[1,2]}}],"at":1,"test":null,"x":-1.5e3,"y":true,"tmax":120,"cur":["USD"]}`, `{"tmax":600000}`, `{"tmax":1,"x":2}`, `{"\u0074max":300}`, `{"tmax":100,"tmax":200}`,
		`{"tmax":300}`, `{"id":"1","imp":[{"tmax":1}],"tmax":300,"at":1}`, `{"tmax":0}`, `{"tmax":300.0}`, `{"tmax":3e2}`, `{"tmax":600001}`,
		`{"a\\":"\\\"","tmax" : 5 }`, `{"\u0074max":1,"tmax":2}`, `{"tmax":"300","tmax":2}`, `{"x":{"y":[[],{}]},"tmax":7}`, "{\n}", `[]`, `{"tmax":[1]}`,
		`{"":{"":[]},"tmax":12,"x`, `{"x":1}"tmax":3}`,
		`{"ext":{"tmax":300}}`, `{"imp":[{"tmax":300}]}`, `{"ext":{"tmax":300,"a":[{"tmax":301}]},"tmax":302}`, `{"x":"tmax","y":["tmax",300]}`, `{"x":"\",\"tmax\":300"}`,
		`{"x":"\\\\","y":"\\\"","tmax":300}`, `{"x":"}]{[,","}":"{","tmax":300}`, `{"":"","tmax":300}`, `{"tmaxx":300,"xtmax":300," tmax":300}`, `{"Tmax":300}`,
		`{"tmax":"100","tmax":200}`, `{"tmax":0}`, `{"tmax":600001}`, `{"tmax":99999999999999999999}`, `{"tmax":18446744073709551676}`, `{"tmax":1000000}`, `{"tmax":-300}`,
		`{"tmax":300.5}`, `{"tmax":3.007e2}`, `{"tmax":"300"}`, `{"tmax":null}`, `{"tmax":[300]}`, `[{"tmax":300}]`, `"tmax"`, ` `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		got, start, end, why := scanTmax(body)
		testsupport.MustTrue(t, bytes.Equal(body, before), "the body was changed")
		testsupport.MustTrue(t, start <= end && end <= len(body) && (got > 0) == (start < end) && (got > 0) == (why == 0), "%v from %d to %d of %d bytes", got, start, end, len(body))
		if got > 0 {
			n, ok := floorOf(string(body[start:end]))
			if !ok || time.Duration(n)*time.Millisecond != got || !bytes.Contains(body, tmaxKey) {
				t.Fatalf("%v, but the body has %q there", got, body[start:end])
			}
		}
		want, ok := parsedTmax(t, body)
		testsupport.MustTrue(t, !ok || want == got, "%v in %q, a parser says %v", got, body, want)
	})
}

// parsedTmax is the value that encoding/json finds; ok is false if body is not a JSON object.
func parsedTmax(t *testing.T, body []byte) (want time.Duration, ok bool) {
	if b := bytes.TrimLeft(body, " \t\r\n"); !json.Valid(body) || b[0] != '{' || !bytes.Contains(body, tmaxKey) {
		return 0, false
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if _, err := dec.Token(); err != nil {
		t.Fatal(err)
	}
	for dec.More() {
		key, err := dec.Token()
		testsupport.NoError(t, err)
		var value json.RawMessage
		testsupport.NoError(t, dec.Decode(&value))
		if key != "tmax" {
			continue
		}
		n, ok := floorOf(string(value))
		if !ok {
			return 0, true
		}
		return time.Duration(n) * time.Millisecond, true
	}
	return 0, true
}

// floorOf returns the whole part of a number within the bounds of a tmax, by exact arithmetic.
func floorOf(number string) (ms int64, ok bool) {
	exact, isNumber := new(big.Rat).SetString(number)
	if !isNumber || len(number) > 64 {
		return 0, false
	}
	n := new(big.Int).Div(exact.Num(), exact.Denom())
	return n.Int64(), n.IsInt64() && n.Int64() >= 1 && n.Int64() <= 600000
}

func TestTmaxIsRoundedDownToMilliseconds(t *testing.T) {
	for number, want := range map[string]int{
		"937.5": 937, "937.0": 937, "9.37e2": 937, "937.999999999999999999999999": 937, "0.937E+3": 937, "93700e-2": 937, "937": 937,
		"1": 1, "1.99": 1, "600000": 600000, "600000.9": 600000, "6e5": 600000, "0600": 0,
		"0": 0, "0.99": 0, "0e9": 0, "1e-1": 0, "-1": 0, "-937.5": 0, "600001": 0, "6.00001e5": 0, "1e999999": 0, "1e-999999": 0, "1e9999999": 0, "1" + strings.Repeat("0", 64): 0,
		"null": 0, "true": 0, `"937"`: 0, "[937]": 0, "{}": 0,
	} {
		got, start, end, _ := scanTmax([]byte(`{"tmax": ` + number + ` }`))
		testsupport.True(t, got == time.Duration(want)*time.Millisecond && (want == 0) == (start == end), "%s: %v, want %d ms", number, got, want)
	}
}

// bidRequest is a body of at least n bytes, like an OpenRTB request, with tmax as the last key.
func bidRequest(n int) []byte {
	b := []byte(`{"id":"80ce30c53c16e6ede735f123ef6e32361bfc7b22","at":1,"cur":["USD"],"imp":[`)
	for len(b) < n-400 {
		b = append(b, `{"id":"1","bidfloor":0.03,"banner":{"h":250,"w":300,"pos":0,"format":[{"w":300,"h":250}]},"ext":{"gpid":"/1111/home#div-1"}},`...)
	}
	return append(b, `{}],"site":{"id":"102855","domain":"www.foobar.com","page":"http://www.foobar.com/1234.html","publisher":{"id":"8953","name":"foobar.com"}},"device":{"ua":"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_6_8) AppleWebKit/537.13","ip":"123.145.167.10"},"user":{"id":"55816b39711f9b5acf3b90e313ed29e51665623f"},"tmax":120}`...)
}
