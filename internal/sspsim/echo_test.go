package sspsim

import (
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
