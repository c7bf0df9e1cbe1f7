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
		if got := (&Request{Body: []byte(body)}).bidID(); string(got) != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}
