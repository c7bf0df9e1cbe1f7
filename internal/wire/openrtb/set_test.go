package openrtb

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// setsOf parses lines of the form "path how value", with "if path" behind it for a condition that the member exists,
// and "remove path", also with a condition.
func setsOf(t testing.TB, text string) (removals []Removal, sets []Set) {
	t.Helper()
	for line := range strings.SplitSeq(text, "\n") {
		line, needed, conditional := strings.Cut(strings.TrimSpace(line), " if ")
		var when []Condition
		if conditional {
			when = []Condition{{Path: MustParsePath(needed)}}
		}
		path, how, _ := strings.Cut(line, " ")
		how, value, _ := strings.Cut(how, " ")
		if path == "remove" {
			removals = append(removals, Removal{Path: MustParsePath(how), When: when})
			continue
		}
		s := Set{Path: MustParsePath(path), Value: []byte(value), When: when, How: map[string]How{"value": Replace, "default": Default, "append": Append}[how]}
		sets = append(sets, s)
	}
	return removals, sets
}

func TestSets(t *testing.T) {
	t.Parallel()
	const chain = "source.schain default {\"ver\":\"1.0\",\"nodes\":[]}\nsource.schain.nodes append {\"sid\":\"1\"}"
	for _, tt := range []struct{ sets, body, want string }{
		{"a value 1", `{}`, `{"a":1}`},
		{"a value 1", " { \n} ", " {\"a\":1 \n} "},
		{"a value 1", `{ "a" : [2] , "b" : 3 }`, `{ "a" : 1 , "b" : 3 }`},
		{"a value 1", "{\n  \"b\": 3\n}\n", "{\n  \"b\": 3,\"a\":1\n}\n"},
		{"a value 1", `{"\u0061":2}`, `{"\u0061":1}`},
		{"a value null", `{"a":2,"A":3}`, `{"a":null,"A":3}`},
		{"a.b.c value {}", `{"x":"y"}`, `{"x":"y","a":{"b":{"c":{}}}}`},
		{"a.b value 1\na.c value 2", `{}`, `{"a":{"b":1,"c":2}}`},
		{"a.b value 1\na.c value 2", `{"a":{}}`, `{"a":{"b":1,"c":2}}`},
		{"a.b value 1\na.c value 2", `{"a":{"c":0, "d":3 },"e":4}`, `{"a":{"c":2, "d":3,"b":1 },"e":4}`},
		{"a value 1\na value 2", `{"a":0}`, `{"a":2}`},
		{"a value 1\nb value 1 if a", `{}`, `{"a":1}`}, // conditions are about the client's body
		{"a value 1 if b", `{"b":null}`, `{"b":null,"a":1}`},
		{"a value 1 if b", `{"c":1}`, ""},
		{`e"\é value 1`, `{}`, `{"e\"\\é":1}`},
		{`e"\é value 1`, `{"\u0065\"\\\u00E9":2}`, `{"\u0065\"\\\u00E9":1}`},
		{"0.x value 1", `{}`, `{"0":{"x":1}}`}, // not an index

		{"a default 1", `{}`, `{"a":1}`},
		{"a default 1", `{"a":null}`, ""},
		{"a.b default 1", `{"a":{"b":2}}`, ""},
		{"a.b default 1", `{"a":{"c":2}}`, `{"a":{"c":2,"b":1}}`},
		{"a value 1\na default 2", `{}`, `{"a":1}`},
		{"a default 1\na value 2", `{}`, `{"a":2}`},

		{"a append 1", `{}`, `{"a":[1]}`},
		{"a append 1", `{"a":[ ]}`, `{"a":[1 ]}`},
		{"a append 1", "{\"a\":[\n  2\n]}", "{\"a\":[\n  2,1\n]}"},
		{"a append 1\na append [2]", `{"a":[{"a":[]}]}`, `{"a":[{"a":[]},1,[2]]}`},
		{"a.b append 1\na.b append 2", `{}`, `{"a":{"b":[1,2]}}`},
		{"a append 1\na value []\na append 2", `{"a":[0]}`, `{"a":[2]}`},
		{"a append 1\na default 0\na append 2", `{}`, `{"a":[1,2]}`},
		{"a append 1 if b\na append 2", `{"a":[]}`, `{"a":[2]}`},

		{chain, `{"id":"1"}`, `{"id":"1","source":{"schain":{"ver":"1.0","nodes":[{"sid":"1"}]}}}`},
		{chain, `{"source":{"tid":"2"}}`, `{"source":{"tid":"2","schain":{"ver":"1.0","nodes":[{"sid":"1"}]}}}`},
		{chain, `{"source":{"schain":{"nodes":[{"sid":"0"}],"ver":"0"}}}`, `{"source":{"schain":{"nodes":[{"sid":"0"},{"sid":"1"}],"ver":"0"}}}`},
		{chain, `{"source":{"schain":{}}}`, `{"source":{"schain":{"nodes":[{"sid":"1"}]}}}`},
		{chain, `{"s\u006furce":{"schain":{"nodes":[]}}}`, `{"s\u006furce":{"schain":{"nodes":[{"sid":"1"}]}}}`},

		// Values of earlier rules are changed by later ones.
		{"a value {\"b\":{\"c\":1}}\na.b.c value 2\na.b.d value 3\na.e append 4", `{"a":0}`, `{"a":{"b":{"c":2,"d":3},"e":[4]}}`},
		{"a value {\"b\":[1]}\na.b append 2", `{"a":{"b":[0]}}`, `{"a":{"b":[1,2]}}`},
		{"a.b value 2\na value {\"b\":1}", `{"a":{"b":0}}`, `{"a":{"b":1}}`},
		{"a.b append 2\na value {\"c\":1}\na.b append 3", `{}`, `{"a":{"c":1,"b":[3]}}`},
		{"a value {\"b\":{}}\na.b value {\"c\":[]}\na.b.c append 1", `{}`, `{"a":{"b":{"c":[1]}}}`},
		{"a value 1\na value {}\na.b value 2", `{}`, `{"a":{"b":2}}`},
		{"a value {\"x\":1}\na.b default 2\na.x default 3", `{}`, `{"a":{"x":1,"b":2}}`},

		// remove comes first.
		{"remove a\na value 1", `{"a":{"x":1},"b":2}`, `{"b":2,"a":1}`},
		{"remove a\na.b value 1", `{"a":{"b":0,"c":2}, "d":3}`, `{"d":3,"a":{"b":1}}`},
		{"remove a\na default 1", `{"a":null}`, `{"a":1}`},
		{"remove a\na append 1", `{"a":[0]}`, `{"a":[1]}`},
		{"remove a\na.b value 1", `{"a":7}`, `{"a":{"b":1}}`}, // what is removed has no type
		{"remove b\na value 1", `{"b":1}`, `{"a":1}`},
		{"remove b\na value 1", `{"x":0, "b":1 }`, `{"x":0,"a":1 }`},
		{"remove b\nremove c\na.x append 1", `{"a":{"x":[]}, "b":1, "c":2}`, `{"a":{"x":[1]}}`},
		{"remove b\nremove c\na value 1\nd value 2", `{"b":0,"a":[],"c":1 ,"b2":{}}`, `{"a":1,"b2":{},"d":2}`},
		{"remove a.b if x\na.b append 1", `{"a":{"b":[0]}}`, `{"a":{"b":[0,1]}}`},
		{"remove a.b if x\na.b append 1", `{"a":{"b":[0]},"x":1}`, `{"a":{"b":[1]},"x":1}`},
		{"remove a.b\na value {\"b\":1}\na.c value 2", `{"a":{"b":0}}`, `{"a":{"b":1,"c":2}}`}, // nothing is removed from values of sets
		{"remove imp.*.ext\nimp append {\"ext\":1}", `{"imp":[{"ext":0},{"id":1,"ext":0} ]}`, `{"imp":[{},{"id":1},{"ext":1} ]}`},
		{"remove imp.*.ext\nimp value [{\"ext\":1}]\nimp append 2", `{"imp":[{"ext":0}]}`, `{"imp":[{"ext":1},2]}`},
	} {
		removals, sets := setsOf(t, tt.sets)
		edit, f := NewEdit(removals, sets...), new(Facts)
		got, changed := edit.Apply(nil, []byte(tt.body), f)
		testsupport.True(t, string(got) == tt.want && changed == (tt.want != "") && f.Reason == Readable, "%s:\n%s is\n%s, want\n%s (%v)", tt.sets, tt.body, got, tt.want, f.Reason)
		testsupport.True(t, len(got) <= len(tt.body)+edit.Growth(), "%s: %d bytes grew to %d, and by at most %d", tt.sets, len(tt.body), len(got), edit.Growth())
	}
}

// A body that parsers may read in different ways, or whose members have other types than the sets need, is not edited.
func TestBodiesThatAreNotSet(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		sets, body string
		want       Reason
	}{
		{"a.b value 1", `{"a":[]}`, WrongType}, {"a.b value 1", `{"a":null}`, WrongType}, {"a.b.c default 1", `{"a":{"b":"x"}}`, WrongType},
		{"a append 1", `{"a":{}}`, WrongType}, {"a append 1", `{"a":null}`, WrongType}, {"a.b append 1", `{"a":7}`, WrongType},
		{"a.b append 1 if c", `{"a":7}`, Readable}, {"a.b value 1\na value 2 if c", `{"a":7}`, WrongType}, {"a value {}\na.b value 1", `{"a":7}`, Readable},
		{"a value 1\na.b value 1", `{}`, WrongType}, {"a value {\"b\":1}\na.b append 1", `{}`, WrongType},
		{"a.b value 1", `{"a":{"b":1},"a":{}}`, Duplicate}, {"a.b value 1", `{"a":{"b":1,"\u0062":2}}`, Duplicate}, {"a.b value 1", `{"a":{},"\u0061":{}}`, Duplicate}, {"a value 1 if b", `{"b":1,"b":2}`, Duplicate},
		{"a value 1", `{"a":{"b":1,"b":2}}`, Readable}, {"a append 1", `{"a":[{"b":1,"b":2}],"x":{"a":1,"a":2}}`, Readable},
		{"a value 1", `[]`, NotObject}, {"a value 1", ``, NotObject}, {"a value 1", `{"b":1`, Syntax}, {"a value 1", `{"a":01}`, Syntax}, {"a append 1", `{"a":[1,]}`, Syntax}, {"a value 1", "\ufeff{}", Syntax},
		{"a value 1", `{"b":` + deep(64) + `}`, Depth}, {"a value 1", `{"a":` + deep(64) + `}`, Depth}, {"x append 1", `{"x":[` + deep(62) + `]}`, Readable},
	} {
		removals, sets := setsOf(t, tt.sets)
		edit, f := NewEdit(removals, sets...), new(Facts)
		got, changed := edit.Apply([]byte("x"), []byte(tt.body), f)
		testsupport.True(t, f.Reason == tt.want && (f.Reason == Readable || !changed && string(got) == "x"), "%s: %s is %v, want %v: %s", tt.sets, tt.body, f.Reason, tt.want, got)
		var p Paths
		p.Condition(&Condition{Path: MustParsePath("other.path")})
		check := edit.NewCheck(&p)
		p.Scan([]byte(tt.body), f)
		fits := f.Reason == Readable && check.Fits([]byte(tt.body), f)
		testsupport.Equal(t, fits, tt.want == Readable, "%[2]s fits %[3]s: %[1]v", tt.body, tt.sets)
	}
}

// modelled applies sets to a document of encoding/json. ok is false if a value has the wrong type.
func modelled(t testing.TB, root map[string]any, sets []Set, holds func(Condition) bool) (ok bool) {
	t.Helper()
	for _, s := range sets {
		if len(s.When) > 0 && !holds(s.When[0]) {
			continue
		}
		object, last := root, len(s.Path)-1
		for _, name := range s.Path[:last] {
			below, there := object[name]
			if !there {
				below = map[string]any{}
				object[name] = below
			}
			if object, ok = below.(map[string]any); !ok {
				return false
			}
		}
		var value any
		testsupport.NoError(t, json.Unmarshal(s.Value, &value))
		before, there := object[s.Path[last]]
		switch array, isArray := before.([]any); {
		case s.How == Replace || s.How == Default && !there:
			object[s.Path[last]] = value
		case s.How == Append && there && !isArray:
			return false
		case s.How == Append:
			object[s.Path[last]] = append(array, value)
		}
	}
	return true
}

// FuzzSet compares edited bodies with an editor of decoded documents.
func FuzzSet(f *testing.F) {
	removals, sets := setsOf(f, `remove b if a
		remove a.c
		remove imp.*.a
		a.b default {"c":[1],"d":{}}
		a.b.c append 2
		a.b.d.e value 3 if b
		a value {"c":{"b":0}} if a.c
		a.c.b value {"x":[]} if d
		a.c.b.x append 4 if imp
		a.c.d append 5 if a.b
		b value {"a":1} if imp
		b.c append 6 if imp
		imp append {"a":7}`)
	for _, body := range []string{
		`{}`, `{"a":{"b":{"c":[]}},"b":1}`, `{"a":{"c":1,"b":{"d":{"e":1 } } }, "d":1}`, `{"imp":[{"a":1},{}],"b":{}}`, `{"imp":[ ],"a":{"c":0},"d":0}`, `{"a":[],"b":2}`, `{"\u0061":{"b":{},"c":{}},"imp":[{"a":1,"b":2}] , "d":{"a":1}}`, `{"b":{"c":[]},"imp":[[{"a":1}],2],"c":"\ud800"}`,
	} {
		f.Add([]byte(body))
	}
	edit, unconditional := NewEdit(removals, sets...), NewEdit(nil, sets[0], sets[1], sets[len(sets)-1])
	var facts Facts
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		for _, e := range []*Edit{edit, unconditional} {
			got, changed := e.Apply([]byte("before"), body, &facts)
			testsupport.MustTrue(t, bytes.Equal(body, before) && bytes.HasPrefix(got, []byte("before")), "the body was changed")
			got = got[len("before"):]
			if facts.Reason != Readable && facts.Reason != WrongType {
				testsupport.MustTrue(t, !changed, "an unreadable body was changed to %q", got)
				continue
			}
			if !changed {
				got = body
			}
			var want, is map[string]any
			testsupport.MustTrue(t, json.Unmarshal(body, &want) == nil && json.Unmarshal(got, &is) == nil, "%q became %q", body, got)
			v, _ := parsed(t, body)
			holds := func(c Condition) (found bool) {
				v.at(c.Path, func(*document) { found = true })
				return found
			}
			if e == edit {
				if holds(removals[0].When[0]) {
					delete(want, "b")
				}
				if a, ok := want["a"].(map[string]any); ok {
					delete(a, "c")
				}
				if imp, ok := want["imp"].([]any); ok {
					for _, i := range imp {
						if object, ok := i.(map[string]any); ok {
							delete(object, "a")
						}
					}
				}
			}
			ok := modelled(t, want, e.sets, holds)
			testsupport.MustEqual(t, facts.Reason == Readable, ok, "%[2]q fits: %[1]v", body)
			testsupport.MustTrue(t, !ok || reflect.DeepEqual(is, want), "%q became %q, want %v", body, got, want)
			testsupport.MustTrue(t, len(got) <= len(body)+e.Growth(), "%d bytes grew to %d", len(body), len(got))
		}
	})
}

// ofSize is a bid request of about n bytes with a supply chain.
func ofSize(n int) []byte {
	const head, tail = `{"id":"1","imp":[`, `{"id":"0"}],"device":{"ua":"x","geo":{"country":"DEU"}},"source":{"tid":"t","schain":{"ver":"1.0","complete":1,"nodes":[{"asi":"a.example","sid":"7","hp":1}]}},"tmax":300}`
	const imp = `{"id":"1","banner":{"w":300,"h":250,"format":[{"w":300,"h":250}]},"bidfloor":0.25,"ext":{"gpid":"/123/home"}},`
	return []byte(head + strings.Repeat(imp, (n-len(head)-len(tail))/len(imp)) + tail)
}

func appendNode(t testing.TB) *Edit {
	_, sets := setsOf(t, `source.schain.nodes append {"asi":"exchange.example","sid":"1234","hp":1}`)
	return NewEdit(nil, sets...)
}

// Sets allocate nothing once Facts and the result have their memory.
func TestSetsDoNotAllocate(t *testing.T) {
	removals, sets := setsOf(t, "remove device.geo\nsource.x default {\"y\":{}}\nsource.x.y.z append {}\nsource.schain.nodes append {}\ntmax value 7")
	for name, e := range map[string]*Edit{"append": appendNode(t), "several": NewEdit(removals, sets...)} {
		body, out, facts := ofSize(4<<10), make([]byte, 0, 8<<10), new(Facts)
		n := testing.AllocsPerRun(100, func() { out, _ = e.Apply(out[:0], body, facts) })
		testsupport.True(t, n == 0 && json.Valid(out) && len(out) > len(body)-100, "%s: %v allocations, %s", name, n, out)
	}
}

func BenchmarkAppend(b *testing.B) {
	run := func(name string, body []byte) {
		b.Run(name, func(b *testing.B) {
			e, out, facts := appendNode(b), make([]byte, 0, 2*len(body)), new(Facts)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				out, _ = e.Apply(out[:0], body, facts)
			}
		})
	}
	browsers, err := os.ReadFile("testdata/bid-request.json") // 3.9 KB
	testsupport.NoError(b, err)
	run("browser", browsers)
	for _, n := range []int{1 << 10, 4 << 10, 16 << 10} { // hardly any strings are longer than a word
		run(fmt.Sprint(n), ofSize(n))
	}
}
