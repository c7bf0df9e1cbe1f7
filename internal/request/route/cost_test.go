//go:build !race

package route

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/syntax"
)

func TestTheCostOfAHostileBodyInTheEnvelopeIsBounded(t *testing.T) {
	testsupport.Long(t)
	const size = 64 << 10
	fill := func(before, piece, after string) string {
		return before + strings.Repeat(piece, (size-len(before)-len(after))/len(piece)) + after
	}
	escaped := func(n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(`"\u0061%d":0`, i)
		}
		return "{" + strings.Join(all, ",") + "}"
	}
	deep := strings.Repeat(`{"a":`, syntax.MaxJSONDepth-1) + "1" + strings.Repeat("}", syntax.MaxJSONDepth-1)
	out := make([]byte, 0, 1<<20)
	cost := func(contentType, body string) func() time.Duration {
		fields, b := []byte("Content-Type: "+contentType+"\r\n"), []byte(body)
		return func() time.Duration {
			return testsupport.Shortest(func() {
				e := entry{ssp: "a", status: 200}
				e.describe(fields, b)
				if e.bound() > 2*len(b)+2*len(contentType)+maxEscapes+256 {
					t.Fatalf("%.50q: %d bytes are reserved for %d", body, e.bound(), len(b))
				}
				out = e.append(out[:0])
			})
		}
	}
	// 1.2 KB of OpenRTB with VAST, repeated.
	bid := `{"id":"1","seatbid":[{"bid":[{"id":"7","impid":"1","price":1.25,"w":320,"h":50,"adomain":["a.example"],"adm":"<VAST version=\"4.2\"><Ad/>` +
		strings.Repeat(`<MediaFile type=\"video/mp4\" width=\"640\" height=\"360\">\n`, 16) + `"}]}],"cur":"USD"},`
	body := fill("[", bid, "{}]")
	common := testsupport.CommonInput{Bytes: size, Cost: cost("application/json", body)}
	for name, body := range map[string]string{
		"brackets":               fill("[", "[],", "[]]"),
		"objects":                fill("[", "{},", "{}]"),
		"deep and back":          fill("[", deep+",", "1]"),
		"too deep":               strings.Repeat("[", size),
		"blanks":                 fill("[", " ", "]"),
		"blanks between":         fill("[1", " \n,\t1", "]"),
		"digits":                 fill("", "9", ""),
		"numbers":                fill("[", "1.5e-10,", "1]"),
		"long numbers":           fill("[", strings.Repeat("1", syntax.MaxJSONNumberBytes-2)+".1,", "1]"),
		"exponents":              fill("[1e", "9", "]"),
		"literals":               fill("[", "true,", "null]"),
		"escapes":                fill(`"`, `\n`, `"`),
		"escaped characters":     fill(`"`, `\u00e9`, `"`),
		"surrogates":             fill(`"`, `\ud83d\ude00`, `"`),
		"a lone surrogate last":  fill(`"`, `\ud83d\ude00`, `\ud83d"`),
		"characters of 4 bytes":  fill(`"`, "😀", `"`),
		"one object, many keys":  manyKeys(syntax.MaxJSONKeys),
		"keys in order":          escaped(syntax.MaxJSONKeys),
		"too many keys":          manyKeys(3 * syntax.MaxJSONKeys),
		"many objects with keys": fill("[", manyKeys(30)+",", "{}]"),
		"a key twice, last":      strings.TrimSuffix(manyKeys(syntax.MaxJSONKeys-1), "}") + `,"0":1}`,
		"keys in many objects":   strings.Repeat(`{"a":1,"b":2,"c":`, syntax.MaxJSONDepth-1) + manyKeys(3000) + strings.Repeat("}", syntax.MaxJSONDepth-1),
		"a long key":             fill(`{"`, "k", `":1}`),
		"a long key of escapes":  fill(`{"`, `\u0061`, `":1}`),
		"quotes, no JSON":        fill(`"`, `\"`, ``),
		"control characters":     fill("", "\x01", ""),
		"no UTF-8":               fill("", "\xff", ""),
		"no UTF-8 at the end":    fill("[", "1,", "\"\xff\"]"),
	} {
		common.Hold(t, name, len(body), cost("application/json", body))
	}
	for _, contentType := range []string{strings.Repeat(";", 16000), strings.Repeat("/", 16000), "a/" + strings.Repeat("+json", 3000), strings.Repeat("\x80", 8000)} {
		common.Hold(t, fmt.Sprintf("the type %.10q", contentType), len(contentType), cost(contentType, "{}"))
	}
}

func TestTheCostOfRoutingAHostileTargetIsBounded(t *testing.T) {
	testsupport.Long(t)
	const size = 15000
	value := "1"
	var routes []*Route
	for i := range 20 {
		routes = append(routes, &Route{
			Name: fmt.Sprint(i), Targets: []Target{{SSP: newFake(t, fmt.Sprint("s", i), reply{}).SSP}}, ClientChoice: true,
			Match: Match{Path: "/fillbuffer", Query: []Condition{{Name: "q", Value: &value}}, Header: []Condition{{Name: "X-A-Name-That-Is-Longer-Than-32-Bytes", Value: &value}}},
		})
	}
	routes = append(routes, &Route{Name: "last", Targets: routes[0].Targets, ClientChoice: true, Match: Match{Path: "/*"}})
	table := NewTable(routes)
	var f header.RequestFields
	var scratch []byte
	cost := func(path, query, fields string) func() time.Duration {
		return func() time.Duration {
			testsupport.NoError(t, f.Scan([]byte("Host: a\r\n"+fields+"\r\n")))
			f.Path, f.Query = []byte(path), []byte(query)
			find := func() {
				if r, name := table.Find(&f, new(Search)); r != nil {
					r.Choose(&f, name, &scratch)
				}
			}
			n := testing.AllocsPerRun(300, find)
			testsupport.True(t, n == 0, "%.20s?%.20s: %v allocations", path, query, n)
			return testsupport.Shortest(find)
		}
	}
	const query = "pub=12345&slot=top&w=320&h=50&gdpr=1&consent=CPzq4sAPzq4sAAGABCENDXCsAP_gAAAAAAwIAAAAAAAA&cb=83927492"
	common := testsupport.CommonInput{Bytes: len(query), Cost: cost("/fillbuffer", query, "User-Agent: phone\r\nAccept: */*\r\n")}
	many := strings.Repeat("X-A-Name-That-Is-Longer-Than-32-Bytes: 0\r\n", 120)
	for _, c := range []struct{ name, path, query, fields string }{
		{"parameters", "/fillbuffer", strings.Repeat("a&", size/2), ""},
		{"empty parameters", "/fillbuffer", strings.Repeat("&", size), ""},
		{"parameters that almost match", "/fillbuffer", strings.Repeat("q=2&", size/4), ""},
		{"equals signs", "/fillbuffer", strings.Repeat("=", size), ""},
		{"a long parameter", "/fillbuffer", strings.Repeat("x", size), ""},
		{"almost a choice", "/fillbuffer", strings.Repeat("ssq=1&", size/6), ""},
		{"a choice at the end", "/fillbuffer", strings.Repeat("a=1&", size/4) + "ssp=s0&b", ""},
		{"choices", "/fillbuffer", strings.Repeat("ssp=s0&", size/7), ""},
		{"fields that almost match", "/fillbuffer", "q=1", many},
		{"dots", "/" + strings.Repeat("/.", size/2), "", ""},
		{"almost dots", "/" + strings.Repeat("/..x", size/4), "", ""},
		{"slashes", strings.Repeat("/", size), "", ""},
		{"a long path", "/fillbuffer/" + strings.Repeat("x", size), "", ""},
	} {
		common.Hold(t, c.name, len(c.path)+len(c.query)+len(c.fields), cost(c.path, c.query, c.fields))
	}
}

// The impressions of a request are searched once, and not for each SSP that gave no bid.
func TestManyImpressionsCostManySSPsNoMoreThanOne(t *testing.T) {
	r := newClient(t, exchange.POST, "", `{"id":"r1","imp":[`+strings.Repeat(`{},`, 20000)+`{"id":"i"}]}`)
	cost := func(ssps int) time.Duration {
		f := fanout{legs: make([]leg, ssps)}
		s := newFake(t, "a", reply{}).SSP
		for i := range f.legs {
			f.legs[i].target = &Target{SSP: s}
		}
		bid := &f.legs[0]
		bid.received, bid.ex = true, exchange.AcquireExchange()
		bid.ex.Response.Body = []byte(`{"id":"r1","seatbid":[{"bid":[{"id":"1","impid":"i","price":1}]}]}`)
		return testsupport.Shortest(func() {
			res := f.merged(&r.Request)
			if res.NoAd || res.Err != nil {
				t.Fatal(res.Err)
			}
			res.Release()
		})
	}
	one, many := cost(1), cost(21)
	testsupport.True(t, many <= 5*one, "1 SSP costs %v, 21 cost %v", one, many)
}
