package openrtb

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// row is a condition with the JSON of its values.
type row struct {
	Path   Path
	Not    bool
	Values []json.RawMessage
}

// conditionRows are the conditions of the table.
func conditionRows(t testing.TB) (rows []row) {
	t.Helper()
	for _, text := range []string{
		`device.geo.country in "DEU" "AUT"`, `device.geo.country not_in "DEU" "AUT"`, `device.geo.country exists`, `device.geo.country missing`,
		`imp.*.video exists`, `imp.*.video missing`, `imp.*.banner.w in 300`, `imp.*.banner.w not_in 300`, `imp.*.banner.w exists`,
		`regs.coppa in 1`, `regs.coppa in "1"`, `regs.coppa not_in 1`, `regs.coppa in 1.0 true`, `regs.coppa in true`, `regs.coppa in false 0`,
		`id in "é/\"\\x" "😀"`, `id exists`, `id not_in ""`, `user.ext.x in 0.1 -2.5e3 12345678901`, `user.ext.x in 0`, `user.ext.x not_in 0`,
		`imp.*.pmp.deals.*.id in "deal-77"`, `imp.*.pmp.deals.*.id not_in "deal-77"`, `imp.*.pmp.deals.*.id exists`, `imp.*.*.x exists`, `imp.*.*.x in 5`,
		`imp exists`, `imp missing`, `device missing`, `a.b exists`, `geo.country exists`,
	} {
		words := strings.Fields(text)
		r := row{Path: strings.Split(words[0], "."), Not: words[1] == "not_in" || words[1] == "missing"}
		for _, v := range words[2:] {
			r.Values = append(r.Values, json.RawMessage(v))
		}
		rows = append(rows, r)
	}
	return rows
}

func compile(t testing.TB, p *Paths, rows []row) (tests []Test) {
	t.Helper()
	for _, r := range rows {
		c := Condition{Path: r.Path, Not: r.Not}
		for _, text := range r.Values {
			v, err := ParseValue(text)
			testsupport.MustTrue(t, err == nil, "%s: %v", text, err)
			c.Values = append(c.Values, v)
		}
		tests = append(tests, p.Condition(&c))
	}
	return tests
}

// deep is a body that nests n objects and arrays.
func deep(n int) string {
	return strings.Repeat(`{"x":[`, n/2) + strings.Repeat("]}", n/2)
}

var readableBodies = []string{
	`{}`, ` { } `, "\t{\r\n}\n",
	`{"device":{"geo":{"country":"DEU"}}}`,
	`{"device":{"geo":{"country":"FRA","type":2}}}`,
	`{"device":{"geo":{"type":2,"country":"AUT"},"ua":"x"},"id":"1"}`,
	"{ \"device\"\t:\n{\r\"geo\" : { \"country\" : \"AUT\" } } }",
	`{"d\u0065vice":{"g\u0065o":{"c\u006funtry":"\u0044EU"}}}`,
	`{"\u0064\u0065\u0076\u0069\u0063\u0065":{"geo":null}}`,
	`{"device":{"geo":{"country":null}}}`, `{"device":{"geo":{"country":["DEU"]}}}`, `{"device":{"geo":{"country":{"DEU":1}}}}`,
	`{"device":{"geo":[{"country":"DEU"}]}}`, `{"device":[{"geo":{"country":"DEU"}}]}`, `{"device":"DEU"}`, `{"device":{"geo.country":"DEU"}}`, `{"device.geo.country":"DEU"}`,
	`{"device":{"geo":{"country":"deu"}}}`, `{"device":{"geo":{"country":"DEU "}}}`, `{"device":{"geo":{"country":""}}}`, `{"Device":{"geo":{"country":"DEU"}}}`,
	`{"x":"{\"device\":{\"geo\":{\"country\":\"DEU\"}}}"}`, `{"x":"\",\"imp\":[{\"video\":{}}],\"y\":\""}`, `{"x\"":1,"imp":[]}`,
	`{"imp":[{"video":{}}]}`, `{"imp":[{"banner":{"w":728}},{"banner":{"w":300}}]}`, `{"imp":[{"banner":{"w":728}},{"banner":{}},{}]}`, `{"imp":[]}`, `{"imp":{}}`, `{"imp":{"0":{"video":{}}}}`, `{"imp":null}`,
	`{"imp":{"*":{"video":1}}}`, `{"imp":[{"video":null}]}`, `{"imp":[[{"video":{}}]]}`, `{"imp":[[{"x":5}],{"video":1}]}`, `{"imp":[{"y":{"x":5}},[{"x":"5"},[{"x":5}]]]}`, `{"imp":[1,"video",null,true,[],{"video":0}]}`,
	`{"imp":[{"banner":{"w":3e2}}]}`, `{"imp":[{"banner":{"w":300.00}}]}`, `{"imp":[{"banner":{"w":0.3E+3}}]}`, `{"imp":[{"banner":{"w":30000e-2}}]}`, `{"imp":[{"banner":{"w":"300"}}]}`, `{"imp":[{"banner":{"w":300.5}}]}`, `{"imp":[{"banner":{"w":-300}}]}`,
	`{"imp":[{"pmp":{"deals":[{"id":"a"},{"id":"deal-77"}]}}]}`, `{"imp":[{"pmp":{"deals":[{"id":"a"}]}},{"pmp":{"deals":[]}},{"pmp":{}}]}`, `{"imp":[{"pmp":{"deals":{"id":"deal-77"}}}]}`,
	`{"regs":{"coppa":1}}`, `{"regs":{"coppa":1.0}}`, `{"regs":{"coppa":1e0}}`, `{"regs":{"coppa":10e-1}}`, `{"regs":{"coppa":0.1e1}}`, `{"regs":{"coppa":"1"}}`, `{"regs":{"coppa":true}}`, `{"regs":{"coppa":false}}`, `{"regs":{"coppa":0}}`, `{"regs":{"coppa":-0}}`, `{"regs":{"coppa":-1}}`, `{"regs":{"coppa":null}}`, `{"regs":{"coppa":[1]}}`, `{"regs":[{"coppa":1}]}`, `{"regs":{}}`, `{"regs":1}`,
	`{"id":"é/\"\\x"}`, `{"id":"\u00e9\/\u0022\u005cx"}`, `{"id":"\u00E9/\"\\x"}`, `{"id":"😀"}`, `{"id":"\ud83d\ude00"}`, `{"id":"\b\f\n\r\t"}`, `{"id":""}`, `{"id":1}`, `{"id":"e\u0301"}`,
	`{"user":{"ext":{"x":0.1}}}`, `{"user":{"ext":{"x":1e-1}}}`, `{"user":{"ext":{"x":-2500}}}`, `{"user":{"ext":{"x":-25e2}}}`, `{"user":{"ext":{"x":2500}}}`, `{"user":{"ext":{"x":12345678901.0}}}`, `{"user":{"ext":{"x":0e7}}}`, `{"user":{"ext":{"x":-0.0}}}`, `{"user":{"ext":{"x":1e400}}}`,
	`{"a":{"c":1,"c":2},"b":[{"a":1,"a":2}],"a2":{"b":1},"x":1,"x":2}`, `{"geo":{"country":1},"geo2":{}}`, `{"":{"":1},"a":{"":{"b":1}}}`,
	`{"id":"` + strings.Repeat("x", 256<<10) + `","imp":[{"video":{}}]}`, `{"x":[` + strings.Repeat(`{"y":"z"},`, 8000) + `0],"regs":{"coppa":1}}`, deep(64), `{"imp":[{"video":` + deep(60) + `}]}`,
}

// unreadableBodies are bodies that no condition matches.
var unreadableBodies = map[string]Reason{
	``: NotObject, " \n": NotObject, `[]`: NotObject, `[{"id":"1"}]`: NotObject, `"x"`: NotObject, `1`: NotObject, `null`: NotObject, `true `: NotObject,
	`{`: Syntax, `{"`: Syntax, `{"id"`: Syntax, `{"id":`: Syntax, `{"id":1`: Syntax, `{"id":1,`: Syntax, `{"id":1,}`: Syntax, `{,}`: Syntax, `{"id" 1}`: Syntax, `{"id":1}}`: Syntax, `{"id":1} x`: Syntax, `{"id":1}{}`: Syntax, `{id:1}`: Syntax, `{'id':1}`: Syntax,
	`{"id":01}`: Syntax, `{"id":1.}`: Syntax, `{"id":.5}`: Syntax, `{"id":+1}`: Syntax, `{"id":-}`: Syntax, `{"id":1e}`: Syntax, `{"id":NaN}`: Syntax, `{"id":nul}`: Syntax, `{"id":True}`: Syntax, `{"x":00}`: Syntax, `{"x":-01}`: Syntax, `{"x":1e+}`: Syntax,
	`{"id":"\x"}`: Syntax, `{"id":"\u12g4"}`: Syntax, `{"id":"\u123"}`: Syntax, "{\"id\":\"a\nb\"}": Syntax, "{\"id\":\"a\x00b\"}": Syntax, `{"\x":1}`: Syntax, "{\"id\":\"1234567\x1f\"}": Syntax, `{"imp":[1,]}`: Syntax, `{"imp":[,]}`: Syntax, `{"imp":[1 2]}`: Syntax, `{"imp":[}`: Syntax, `{"imp":[}]`: Syntax, `{"x":{]}`: Syntax, `{"x":[{"y":1]}`: Syntax, `{"x":{"y"}}`: Syntax,
	"\ufeff{}": Syntax, "\x1f\x8b\x08": Syntax, "{}\x00": Syntax, "\v{}": Syntax, `[} `: Syntax, `"x" "y"`: Syntax, "{\u00a0}": Syntax,
	`{"id":1,"id":1}`: Duplicate, `{"id":1,"i\u0064":2}`: Duplicate, `{"device":{"geo":{"country":"DEU","country":"DEU"}}}`: Duplicate, `{"device":{"geo":{}},"x":1,"device":{"geo":{"country":"DEU"}}}`: Duplicate, `{"imp":[{},{"video":1,"video":1}]}`: Duplicate, `{"imp":[{"pmp":{"deals":[{"id":1,"x":{},"id":2}]}}]}`: Duplicate, `{"imp":[[{"x":1,"x":2}]]}`: Duplicate,
	deep(66): Depth, `{"imp":[{"video":` + deep(62) + `}]}`: Depth, `{"x":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`: Depth, strings.Repeat("[", 65) + strings.Repeat("]", 65): Depth, strings.Repeat("[", 1<<20): Depth,
}

func TestNoConditionHoldsForAnUnreadableBody(t *testing.T) {
	t.Parallel()
	var (
		p Paths
		f Facts
	)
	tests := compile(t, &p, conditionRows(t))
	for body, why := range unreadableBodies {
		p.Scan([]byte(body), &f)
		testsupport.Equal(t, f.Reason, why, "%[2].200q is unreadable as %[1]q", body)
		for i, test := range tests {
			testsupport.True(t, !f.Holds(test), "condition %d holds for %.200q", i, body)
		}
	}
	for why := Syntax; why < Reasons; why++ {
		p.Refuse(why, &f)
		testsupport.True(t, !f.HoldAll(tests[:1]) && f.HoldAll(nil) && why.String() != "" && why.Text() != "", "%v: a condition holds, or no conditions do not hold", why)
	}
}

// Numbers beyond float64 differ.
func TestNumbersCompareExactly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		configured, body string
		equal            bool
	}{
		{"9007199254740993", "9007199254740993", true}, {"9007199254740993", "9007199254740992", false}, {"9007199254740993", "9007199254740993.0e0", true},
		{"0.1", "0.10000000000000000001", false}, {"1e-7", "0.0000001", true}, {"1", "0.99999999999999999999", false}, {"0", "-0.000e-5", true}, {"0", "0e9999999999", false},
		{"1", "1e99999999999999999999", false}, {"-1", "1", false}, {"1", strings.Repeat("1", 100), false}, {"10", "1" + strings.Repeat("0", 1), true}, {"1", "1." + strings.Repeat("0", 100), false},
	} {
		var (
			p Paths
			f Facts
		)
		v, err := ParseValue([]byte(c.configured))
		testsupport.NoError(t, err)
		test := p.Condition(&Condition{Path: Path{"x"}, Values: []Value{v}})
		p.Scan(fmt.Appendf(nil, `{"x":%s}`, c.body), &f)
		got := f.Holds(test)
		testsupport.True(t, got == c.equal && f.Reason == Readable, "%s and %s are equal: %v (%v), want %v", c.configured, c.body, got, f.Reason, c.equal)
	}
	for _, text := range []string{"", "null", "[1]", "{}", "x", `"`, "01", "1 2", "1e9999999", strings.Repeat("1", 65), "\ufeff1"} {
		v, err := ParseValue([]byte(text))
		testsupport.True(t, err != nil, "%.20q is the value %v", text, v)
	}
}

func TestTheWholePartOfANumber(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"0": 0, "5": 5, "937.5": 937, "9.37e2": 937, "9370e-1": 937, "0.9": 0, "1e3": 1000, "1000.9": 1000, "1001": -1, "1e4": -1, "1e999": -1, "-1": -1, "": -1, `"5"`: -1, "null": -1,
	} {
		n, ok := Floor([]byte(text), 1000)
		testsupport.True(t, ok == (want >= 0) && n == max(want, 0), "the whole part of %s is %d, %v, want %d", text, n, ok, want)
	}
}

// Many members below one path are found by a map.
func TestManyPathsBelowOneMember(t *testing.T) {
	t.Parallel()
	var (
		p     Paths
		f     Facts
		tests []Test
		body  strings.Builder
	)
	for i := range 100 {
		v, err := ParseValue(fmt.Appendf(nil, `%d`, i))
		testsupport.NoError(t, err)
		tests = append(tests, p.Condition(&Condition{Path: Path{"ext", fmt.Sprint("m", i)}, Values: []Value{v}}))
		fmt.Fprintf(&body, `"m%d":%d,`, i, i)
	}
	p.Scan([]byte(`{"ext":{`+body.String()+`"x":1}}`), &f)
	testsupport.True(t, f.HoldAll(tests), "a condition does not hold")
	p.Scan([]byte(`{"ext":{`+body.String()+`"m99":1}}`), &f)
	testsupport.Equal(t, f.Reason, Duplicate, "a member that is there twice is %v")
}

func TestPaths(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", ".", "a.", ".a", "a..b", "*", "*.a", "a.*"} {
		p, err := ParsePath(text)
		testsupport.True(t, err != nil, "%q is the path %q", text, p)
	}
	p := MustParsePath("imp.*.*.x")
	testsupport.True(t, len(p) == 4 && p.String() == "imp.*.*.x", "got %q", p)
}

// A body that has a member of an edit twice is unreadable for the paths to which the edit's were added.
func TestPathsOfAnEditAreAdded(t *testing.T) {
	t.Parallel()
	var (
		p Paths
		f Facts
	)
	NewEdit([]Removal{{Path: MustParsePath("imp.*.ext.x")}}).NewCheck(&p)
	for body, want := range map[string]Reason{`{"imp":[{},{"ext":{"x":1,"x":2}}]}`: Duplicate, `{"imp":[{"y":1,"y":2}]}`: Readable} {
		p.Scan([]byte(body), &f)
		testsupport.Equal(t, f.Reason, want, "%[2]s: %[1]v", body)
	}
}

func TestValuesOfMembers(t *testing.T) {
	t.Parallel()
	var (
		p Paths
		f Facts
	)
	id, app, cur := p.Member(Path{"id"}), p.Member(MustParsePath("app.id")), p.Member(Path{"cur"})
	testsupport.Equal(t, p.Member(Path{"id"}), id, "one path has two members: %v")
	body := []byte(`{"cur" : [ "USD" ] , "id":"a\u0062", "app":{"x":1}}`)
	p.Scan(body, &f)
	testsupport.Equal(t, string(f.Value(id, body))+string(f.Value(cur, body))+string(f.Value(app, body)), `"a\u0062"[ "USD" ]`, "the values are %s")
	got := AppendText([]byte("x"), f.Value(id, body))
	testsupport.True(t, string(got) == "xab", "the text of %s is %s", f.Value(id, body), got)
	p.Scan([]byte(`{"id":"1","id":"1"}`), &f)
	testsupport.True(t, f.Value(id, body) == nil, "an unreadable body has a value")
}

func TestAWholeNumberInThePathOfAMemberIsAnElement(t *testing.T) {
	t.Parallel()
	var (
		p Paths
		f Facts
	)
	var members []Member
	for _, path := range []string{"imp.0.banner.w", "imp.1.id", "imp.10.id", "cur.0", "imp.01.id"} {
		members = append(members, p.Member(MustParsePath(path)))
	}
	for body, want := range map[string]string{
		`{"imp":[{"id":"a","banner":{"w":300}},{"id":"b"}],"cur":["EUR" , "USD"]}`:   `300|"b"||"EUR"|`,
		`{"imp":[0,1,2,3,4,5,6,7,8,9,{"id":"k"},{"id":"l"}],"cur":[]}`:               `||"k"||`,
		`{"imp":[[{"id":"a"}],[{"id":"b"}]],"cur":"EUR"}`:                            `||||`,
		`{"imp":{"0":{"banner":{"w":1}},"1":{"id":2},"01":{"id":3}},"cur":{"0":[]}}`: `1|2||[]|3`,
		`{"imp":[{"banner":{"w":300},"banner":{"w":320}}],"cur":["EUR"]}`:            `||||`,
		`{"imp":[{"banner":{"w":300}},{"id":"b"} {}],"cur":["EUR"]}`:                 `||||`,
		`{"imp":[` + deep(62) + `,{"id":"b"}]}`:                                      `|"b"|||`,
		`{"imp":[` + deep(64) + `,{"id":"b"}]}`:                                      `||||`,
	} {
		p.Scan([]byte(body), &f)
		var got []string
		for _, m := range members {
			got = append(got, string(f.Value(m, []byte(body))))
		}
		testsupport.Equal(t, strings.Join(got, "|"), want, "%.80[2]s: the values are %[1]s", body)
	}
	// A condition is about members of objects only.
	var c Paths
	test := c.Condition(&Condition{Path: MustParsePath("imp.0.id")})
	c.Scan([]byte(`{"imp":[{"id":1}]}`), &f)
	testsupport.True(t, !f.Holds(test), "a condition holds for an element")
}

func TestFinderFindsTheFirstMember(t *testing.T) {
	t.Parallel()
	finder := NewFinder(MustParsePath("site.publisher.id"))
	for body, want := range map[string]string{
		`{"site":{"publisher":{"id":"p-1"}}}`:                                    `"p-1"`,
		`{"site":{"publisher":{"id": 17 ,"id":2}}}`:                              `17`,
		`{"site":{"publisher":{"id":"a"},"x":}`:                                  `"a"`,
		`{"s\u0069te":{"publisher":{"id":{"x":[1]}}}}`:                           `{"x":[1]}`,
		`{"site":{"publisher":{}},"site":{"publisher":{"id":null}}}`:             `null`,
		`{"publisher":{"id":1},"site":{"id":2,"ext":{"publisher":{"id":3}}}}`:    ``,
		`{"site":{"publisher":{"id":"a"`:                                         ``,
		`{"site":{"publisher":{"id":"a" "b"}}}`:                                  ``,
		`{"x":,"site":{"publisher":{"id":"a"}}}`:                                 ``,
		`[{"site":{"publisher":{"id":"a"}}}]`:                                    ``,
		``:                                                                       ``,
		`{"site":[{"publisher":{"id":"a"}}],"x":"{\"site\":{\"publisher\":1}}"}`: ``,
	} {
		start, end, _ := finder.Find([]byte(body))
		testsupport.Equal(t, body[start:end], want, "%[2]s: found %[1]q", body)
	}
	finder = NewFinder(MustParsePath("cur.1"))
	for body, want := range map[string]string{`{"cur":["USD", "EUR" ,x`: `"EUR"`, `{"cur":["USD","EUR" "x"]}`: ``, `{"cur":["USD"]}`: ``} {
		start, end, _ := finder.Find([]byte(body))
		testsupport.Equal(t, body[start:end], want, "%[2]s: found %[1]q", body)
	}
}
