package openrtb

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/header"
)

// document is a JSON value as encoding/json reads it, with objects as lists of members.
type document struct {
	scalar   any // json.Number, string, bool or nil
	elements []document
	members  []member
	isArray  bool
	isObject bool
}

type member struct {
	name  string
	value document
}

// parse reads one value of d.
func parse(t *testing.T, d *json.Decoder) (v document, depth int) {
	t.Helper()
	next := func() json.Token {
		token, err := d.Token()
		testsupport.NoError(t, err)
		return token
	}
	token := next()
	switch token {
	case json.Delim('['):
		v.isArray = true
		for d.More() {
			element, n := parse(t, d)
			v.elements, depth = append(v.elements, element), max(depth, n)
		}
	case json.Delim('{'):
		v.isObject = true
		for d.More() {
			name := next().(string)
			value, n := parse(t, d)
			v.members, depth = append(v.members, member{name, value}), max(depth, n)
		}
	default:
		v.scalar = token
		return v, 0
	}
	next()
	return v, depth + 1
}

// at yields the values at path, and reports whether a member on it is there twice.
func (v *document) at(path Path, yield func(*document)) (twice bool) {
	if len(path) == 0 {
		yield(v)
		return false
	}
	if path[0] == AnyElement {
		for i := range v.elements {
			twice = v.elements[i].at(path[1:], yield) || twice
		}
		return twice
	}
	found := 0
	for i := range v.members {
		if m := &v.members[i]; m.name == path[0] {
			found++
			twice = m.value.at(path[1:], yield) || twice
		}
	}
	return twice || found > 1
}

// parsed returns body as encoding/json reads it, and why it is unreadable. Whether a member is there twice
// remains to be seen.
func parsed(t *testing.T, body []byte) (v document, why Reason) {
	t.Helper()
	if !json.Valid(body) {
		why = Syntax
		if len(bytes.Trim(body, " \t\r\n")) == 0 {
			why = NotObject
		}
		return v, why
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	v, depth := parse(t, d)
	switch {
	case depth > MaxDepth:
		return v, Depth
	case !v.isObject:
		return v, NotObject
	}
	return v, Readable
}

// FuzzConditions compares conditions with a model over encoding/json.
func FuzzConditions(f *testing.F) {
	for _, body := range readableBodies {
		f.Add([]byte(body))
	}
	for body := range unreadableBodies {
		if len(body) < 4<<10 {
			f.Add([]byte(body))
		}
	}
	f.Add([]byte("{\"id\":\"\xff\",\"x\":\"\\ud800\\u0041\",\"user\":{\"ext\":{\"x\":0.10}}}"))
	f.Add([]byte(`{"user":{"ext":{"x":0e00}},"regs":{"coppa":10e-01}}`))
	rows := conditionRows(f)
	var p Paths
	tests := compile(f, &p, rows)
	var facts Facts
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		p.Scan(body, &facts)
		testsupport.MustTrue(t, bytes.Equal(body, before), "the body was changed")
		v, want := parsed(t, body)
		twice := false
		for i, r := range rows {
			hit := false
			again := v.at(r.Path, func(d *document) {
				hit = hit || len(r.Values) == 0 || slices.ContainsFunc(r.Values, d.equals)
			})
			twice = twice || again
			testsupport.MustTrue(t, facts.Reason != Readable || facts.Holds(tests[i]) == (hit != r.Not), "%+v is %v for %q", r, hit == r.Not, body)
		}
		got := facts.Reason
		if got == Duplicate && (twice || want == Syntax) || got == Depth && want == Syntax { // an error further on
			return
		}
		if want == Readable && twice {
			want = Duplicate
		}
		testsupport.MustEqual(t, got, want, "%[2]q is unreadable as %[1]q", body)
	})
}

// equals compares d with a string, number or boolean of a condition.
func (d *document) equals(value json.RawMessage) bool {
	if d.isArray || d.isObject {
		return false
	}
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	var v any
	if decoder.Decode(&v) != nil {
		return false
	}
	if n, ok := v.(json.Number); ok {
		other, isNumber := d.scalar.(json.Number)
		return isNumber && canonical(string(n)) == canonical(string(other))
	}
	return v == d.scalar
}

// canonical writes a number without an exponent, with all its digits. A number beyond the bounds stays as it is.
func canonical(number string) string {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(number), "e")
	e, err := strconv.Atoi(cmp.Or(exponent, "0"))
	most := 100
	isZero := strings.Trim(mantissa, "-0.") == ""
	if isZero {
		most = maxExponent
	}
	switch {
	case err != nil, e > most, e < -most, len(number) > maxNumber:
		return number
	case isZero:
		return "0"
	}
	sign := ""
	if strings.HasPrefix(mantissa, "-") {
		sign, mantissa = "-", mantissa[1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	whole, fraction = strings.Repeat("0", 100)+whole, fraction+strings.Repeat("0", 100)
	all, point := whole+fraction, len(whole)+e
	return sign + strings.TrimLeft(all[:point], "0") + "." + strings.TrimRight(all[point:], "0")
}

// FuzzEdit compares edited bodies with a model over encoding/json. What stays is equal byte for byte.
func FuzzEdit(f *testing.F) {
	for _, body := range []string{
		`{"device":{"ifa":"x"}}`, `{"device":{"ifa":"x","ua":"y"},"a":1}`, `{"a":1 , "device" : { "ua":"y" , "ifa":"x" } , "user":{"id":1,"eids":[]}}`, `{"user":1,"device":{"ifa":1},"x":2}`, `{"device":{"ifa":1,"ip":"192.0.2.7"},"user":2,"regs":{"coppa":1}}`,
		`{"imp":[{"ext":1,"id":1},{"id":2,"ext":{}},{"ext":3},{},5]}`, `{"user":{},"imp":[{"ext":1}]}`, `{"device":{"ip":"192.0.2.7","ipv6":"2001:db8:1:2:3::4"}}`, `{"device":{"ip":7,"ipv6":null,"x":"y"}}`, `{"device":{"ip":"x"},"user":{"ifa":1}}`,
		`{"device":{"ip":"\u0031.2.3.4","ipv6":"::ffff:192.0.2.1"}}`, `{"device":{"ip":"192.0.2.7:80"},"user" : 1 }`, `{"device":{"d\u0065vice":1,"if\u0061":1}}`, `{ "user":1}`, `{"regs":{"coppa":0},"user":{"x":1}}`, `{"device":[{"ifa":1}],"a":{"user":1}}`,
		`{"openrtb":{"request":{"context":{"device":{"ip":"192.0.2.7"}}}}}`, `{"device":{"ifa":"x","ip":"192.0.2.7"},"user":`,
	} {
		f.Add([]byte(body))
	}
	removal := NewEdit([]Removal{
		{Path: MustParsePath("device.ifa")}, {Path: MustParsePath("imp.*.ext")}, {Path: MustParsePath("user.eids")},
		{Path: MustParsePath("user"), When: []Condition{{Path: MustParsePath("regs.coppa"), Not: true, Values: []Value{{other: true, text: "0"}}}}},
	})
	removed := func(path Path, v *document, root *document) (keep bool) {
		if len(path) != strings.Count(path.String(), ".")+1 {
			return true // a name has a dot
		}
		switch path.String() {
		case "device.ifa", "imp.*.ext", "user.eids":
			return false
		case "user":
			zero := false
			root.at(MustParsePath("regs.coppa"), func(d *document) { zero = zero || d.equals(json.RawMessage("0")) })
			return zero
		}
		return true
	}
	shortened := func(path Path, v *document, _ *document) (keep bool) {
		if !slices.Contains(addressPaths, path.String()) || len(path) != strings.Count(path.String(), ".")+1 {
			return true
		}
		text, ok := v.scalar.(string)
		address, err := netip.ParseAddr(text)
		if !ok || err != nil || address.Zone() != "" {
			return false
		}
		v.scalar = header.Shorten(address.Unmap()).String()
		return true
	}
	var facts Facts
	f.Fuzz(func(t *testing.T, body []byte) {
		for edit, change := range map[*Edit]func(Path, *document, *document) bool{removal: removed, ShortenAddresses: shortened} {
			before := bytes.Clone(body)
			got, changed := edit.Apply([]byte("before"), body, &facts)
			testsupport.MustTrue(t, bytes.Equal(body, before), "the body was changed")
			if got = bytes.TrimPrefix(got, []byte("before")); !changed {
				testsupport.MustTrue(t, len(got) <= 0, "nothing changed, and %q was written", got)
				got = body
			}
			if facts.Reason != Readable {
				testsupport.MustTrue(t, !changed, "an unreadable body was changed to %q", got)
				continue
			}
			v, _ := parsed(t, body)
			expect := append([]string(nil), tokens(t, &v, nil, &v, change)...)
			w, why := parsed(t, got)
			testsupport.MustTrue(t, why == Readable, "%q became %q, which is %v", body, got, why)
			all := tokens(t, &w, nil, &w, nil)
			testsupport.MustTrue(t, slices.Equal(all, expect), "%q became %q: %q, want %q", body, got, all, expect)
			testsupport.MustTrue(t, len(got) <= len(body) && (isSubsequence(got, body) || edit != removal), "%q became %q, which has other bytes", body, got)
			inPlace, _ := edit.Apply(before[:0], before, &facts)
			testsupport.MustTrue(t, !changed || bytes.Equal(inPlace, got), "in place, %q became %q, want %q", body, inPlace, got)
		}
	})
}

// tokens lists the values of v, without the members that change removes; nil changes nothing.
func tokens(t *testing.T, v *document, path Path, root *document, change func(Path, *document, *document) bool) (all []string) {
	t.Helper()
	switch {
	case v.isArray:
		all = append(all, "[")
		for i := range v.elements {
			all = append(all, tokens(t, &v.elements[i], append(slices.Clone(path), AnyElement), root, change)...)
		}
	case v.isObject:
		all = append(all, "{")
		for i := range v.members {
			m := &v.members[i]
			below := append(slices.Clone(path), m.name)
			if change == nil || change(below, &m.value, root) {
				all = append(all, "member "+m.name)
				all = append(all, tokens(t, &m.value, below, root, change)...)
			}
		}
	default:
		text, err := json.Marshal(v.scalar)
		testsupport.NoError(t, err)
		return []string{string(text)}
	}
	return append(all, "end")
}

// isSubsequence reports whether part is whole without some of its bytes.
func isSubsequence(part, whole []byte) bool {
	for _, c := range whole {
		if len(part) > 0 && part[0] == c {
			part = part[1:]
		}
	}
	return len(part) == 0
}
