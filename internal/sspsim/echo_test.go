package sspsim

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"net/url"
	"strings"
	"testing"
)

func TestOpenRTBIDIsTheTopLevelOne(t *testing.T) {
	for body, want := range map[string]string{
		`{"id":"a"}`: "a",
		" \n{ \"imp\" : [{\"id\":\"x\"}] , \"id\" : \"b\" }": "b",
		`{"a":"id","b":["id","id"],"id":"c","id":"d"}`:       "c",
		`{"a\"":{"id":"x"},"id":"q\"r"}`:                     `q\"r`,
		`{"id":7}`:                                           "",
		`{"id":null}`:                                        "",
		`{"ID":"x"}`:                                         "",
		`[{"id":"x"}]`:                                       "",
		`"id":"x"`:                                           "",
		`{"id":"x`:                                           "",
		`{"id"`:                                              "",
		`{"id":"`:                                            "",
		"{\"id\":\"a\nb\"}":                                  "",
		``:                                                   "",
		`{"site":{"id":"x"}}`:                                "",
	} {
		if got := openRTBID([]byte(body)); string(got) != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}

// FuzzOpenRTBID compares the scan with encoding/json.
func FuzzOpenRTBID(f *testing.F) {
	for _, seed := range []string{`{"id":"a"}`, `{"imp":[{"id":"x"}],"id":"b"}`, `{"a":{"b":[1,{"id":"c"}]},"id":"d"}`, `[{"id":"x"}]`, `{"":"","id":"e"}`, `{"id":"\u0061"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := openRTBID(body)
		if !isValue(got) || !bytes.Contains(body, got) {
			t.Fatalf("%q is not allowed in a field", got)
		}
		var doc map[string]json.RawMessage
		if bytes.Contains(body, []byte(`\u`)) || bytes.Count(body, []byte(`"id"`)) > 1 || json.Unmarshal(body, &doc) != nil {
			return // an escaped key or two equal keys: the results may differ
		}
		want := []byte(nil)
		if raw := doc["id"]; len(raw) > 1 && raw[0] == '"' && isValue(raw) {
			want = raw[1 : len(raw)-1]
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%s: %q, want %q", body, got, want)
		}
	})
}

func FuzzQueryValue(f *testing.F) {
	for _, seed := range []string{"/bid?cb=1", "/?a=1&cb=2&cb=3", "/cb=1", "/?cb", "/?cb=", "/?xcb=1&cb=%20?cb=4", "/?&&cb=5"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, target []byte) {
		got := queryValue(target, "cb")
		_, query, _ := strings.Cut(string(target), "?")
		want := ""
		for pair := range strings.SplitSeq(query, "&") {
			if v, ok := strings.CutPrefix(pair, "cb="); ok {
				want = v
				break
			}
		}
		if string(got) != want {
			t.Fatalf("%q: %q, want %q", target, got, want)
		}
		if parsed, err := url.ParseQuery(query); err == nil && parsed.Has("cb") && len(got) == 0 && parsed.Get("cb") != "" && !strings.Contains(query, "%") && strings.HasPrefix(query, "cb=") {
			t.Fatalf("%q: nothing, and net/url has %q", target, parsed.Get("cb"))
		}
	})
}

// FuzzIDsStandInDocuments checks that an id cannot break the document around it.
func FuzzIDsStandInDocuments(f *testing.F) {
	for _, seed := range []string{"plain", `"},{"`, `<&">`, "\xff\x00", "a]]>b", `\`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, id []byte) {
		q := ids{requestID: id}
		for _, kind := range []Kind{OpenRTB, VAST} {
			p := newScript(Behaviour{Response: Response{Kind: kind}})
			r, _ := p.compose(&fate{size: 1000}, &q, nil)
			var text []byte
			for r.body.len() > 0 {
				text = append(text, r.body.next(100)...)
			}
			if kind == OpenRTB && !json.Valid(text) {
				t.Fatalf("not JSON: %s", text)
			}
			var doc struct {
				Ad []struct {
					ID string `xml:"id,attr"`
				}
			}
			if kind == VAST {
				if err := xml.Unmarshal(text, &doc); err != nil || len(doc.Ad) != 1 {
					t.Fatalf("not VAST: %v: %s", err, text)
				}
			}
		}
	})
}

func TestBodiesHaveTheSizeAskedFor(t *testing.T) {
	for _, kind := range []Kind{OpenRTB, VAST, Raw} {
		for _, size := range []int{0, 1, 500, 501, 70_000} {
			p := newScript(Behaviour{Response: Response{Kind: kind, Size: Size{Constant: size}, Echo: true}})
			f := fate{size: size}
			q := ids{cb: []byte("an-id-of-some-length")}
			r, _ := p.compose(&f, &q, nil)
			n, pieces := r.body.len(), 0
			for r.body.len() > 0 {
				if piece := r.body.next(7000); len(piece) == 0 || len(piece) > 7000 {
					t.Fatalf("piece of %d bytes", len(piece))
				} else {
					pieces += len(piece)
				}
			}
			if pieces != n || n < size || (kind == Raw || size >= 500) && n != size {
				t.Errorf("%s of %d: %d bytes, in pieces %d", kind, size, n, pieces)
			}
		}
	}
}
