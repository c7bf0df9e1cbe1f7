package forwarding

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"adbuffer/internal/e2e"
)

// A body that is not JSON must not become part of the envelope's JSON.
func TestNoBodyCanForgeARivalsEntryInTheEnvelope(t *testing.T) {
	t.Parallel()
	const forged = `{"x":1}},{"ssp":"b","status":200,"ms":1,"content_type":"application/json","body":{"price":999}`
	for _, row := range []struct {
		name, body string
		fields     []string
		text       string // as a string in body; "" if body is not a string
		base64     bool
		inline     bool
	}{
		{"JSON that closes its entry", forged, []string{"Content-Type: application/json"}, forged, false, false},
		{"two values", `{} {}`, []string{"Content-Type: application/json"}, `{} {}`, false, false},
		{"a truncated object", `{"a":`, []string{"Content-Type: application/json"}, `{"a":`, false, false},
		{"a quote", `","ssp":"b`, []string{"Content-Type: text/plain"}, `","ssp":"b`, false, false},
		{"JSON of another type", `{"a":1}`, []string{"Content-Type: text/html"}, `{"a":1}`, false, false},
		{"no UTF-8", "{\"a\":\"\xff\"}", []string{"Content-Type: application/json"}, "", true, false},
		{"a compressed body", `{"a":1}`, []string{"Content-Type: application/json", "Content-Encoding: gzip"}, "", true, false},
		{"plain JSON", ` {"a":[1,"\u0022"]} `, []string{"Content-Type: application/vnd.ad+json; charset=utf-8"}, "", false, true},
		{"a type with quotes", `<x/>`, []string{`Content-Type: text/xml","ssp":"b`}, `<x/>`, false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := e2e.Healthy(t)
			ab := e2e.Start(t, fmt.Sprintf(`
ssps:
  - {name: a, endpoints: [%q]}
  - {name: b, endpoints: [%q]}
routes:
  - {name: default, match: {path: /fillbuffer}, mode: parallel-all, ssps: [a, b]}
`, e2e.StartScripted(t, e2e.ScriptedResponse(row.body, row.fields...)), b.URL()))
			e := e2e.EnvelopeOf(ab.Get("/fillbuffer?cb=genuine"))
			if len(e.Results) != 2 || e.Results[0].SSP != "a" || e.Results[1].SSP != "b" || !strings.Contains(string(e.Results[1].Body), `"id":"genuine"`) {
				t.Fatalf("the envelope has other entries than a's and b's: %+v", e)
			}
			a := e.Results[0]
			var text string
			json.Unmarshal(a.Body, &text)
			raw, _ := base64.StdEncoding.DecodeString(a.Base64)
			switch {
			case row.base64 && string(raw) != row.body, !row.base64 && a.Base64 != "":
				t.Errorf("body_base64 is %q, the body %s", raw, a.Body)
			case row.inline && string(a.Body) != strings.TrimSpace(row.body):
				t.Errorf("the body is %s, want %s", a.Body, row.body)
			case text != row.text:
				t.Errorf("the body is %s, want the string %q", a.Body, row.text)
			}
			if want := strings.TrimPrefix(row.fields[0], "Content-Type: "); a.ContentType != want {
				t.Errorf("content_type %q, want %q", a.ContentType, want)
			}
		})
	}
}
