//go:build !race

// Parsers of other languages read what Go made before, one document after the other: there is nothing for the race detector.

package route

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/syntax"

	jsonv2 "github.com/go-json-experiment/json"
)

// readers are parsers that clients use, in their strictest mode. Each reads documents in base64,
// one per line. For each it prints how many results it has and the name of the second SSP. If it
// refuses the document, it prints "error: ...".
var readers = []struct {
	name string
	args []string
}{
	{"Python, which refuses keys that repeat, lone surrogates, and numbers beyond 64 bits and float64", []string{"python3", "-c", `
import base64, json, math, sys

def pairs(list):
    if len({key for key, _ in list}) < len(list):
        raise ValueError("a key repeats")
    return dict(list)

def whole(text):
    n = int(text)
    if not -2**63 <= n < 2**64:
        raise ValueError("beyond 64 bits")
    return n

def number(text):
    x = float(text)
    if math.isinf(x):
        raise ValueError("beyond float64")
    return x

def constant(text):
    raise ValueError("no JSON: " + text)

for line in sys.stdin:
    try:
        text = base64.b64decode(line).decode("utf-8", "strict")
        doc = json.loads(text, object_pairs_hook=pairs, parse_int=whole, parse_float=number, parse_constant=constant)
        json.dumps(doc, ensure_ascii=False, allow_nan=False).encode("utf-8", "strict")
        print(len(doc["results"]), doc["results"][1]["ssp"])
    except Exception as e:
        print("error:", str(e).encode("ascii", "replace"))
`}},
	{"JavaScript, with each string encoded again and each number finite", []string{"node", "-e", `
const walk = v => {
  if (typeof v === "string") encodeURIComponent(v);
  else if (typeof v === "number" && !Number.isFinite(v)) throw new Error("not finite");
  else if (v !== null && typeof v === "object") for (const k of Object.keys(v)) { walk(k); walk(v[k]); }
};
for (const line of require("fs").readFileSync(0, "latin1").trim().split("\n")) {
  try {
    const doc = JSON.parse(new TextDecoder("utf-8", {fatal: true, ignoreBOM: true}).decode(Buffer.from(line, "base64")));
    walk(doc);
    console.log(doc.results.length, doc.results[1].ssp);
  } catch (e) { console.log("error:", e.message.replace(/\n/g, " ")); }
}
`}},
	{"jq", []string{"jq", "-R", "-r", `try (@base64d | fromjson | "\(.results | length) \(.results[1].ssp)") catch "error: \(.)"`}},
	{"Perl", []string{"perl", "-MJSON::PP", "-MMIME::Base64", "-ne", `
my $doc = eval { JSON::PP->new->utf8->decode(decode_base64($_)) };
print $doc ? scalar(@{$doc->{results}}) . " $doc->{results}[1]{ssp}\n" : "error: " . ($@ =~ s/\n/ /gr) . "\n";
`}},
}

// Whatever bytes one SSP sends, clients can read the other SSPs' responses.
func TestEveryParserReadsTheEnvelope(t *testing.T) {
	bodies := append([]string{
		manyKeys(syntax.MaxJSONKeys), manyKeys(syntax.MaxJSONKeys + 1), strings.Repeat("[", syntax.MaxJSONDepth) + strings.Repeat("]", syntax.MaxJSONDepth),
		strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000), "\uFEFF{}", "\"\xff\"", "\"\xed\xa0\x80\"", "\x00", strings.Repeat("9", 5000),
		`"` + strings.Repeat(`\u0000`, 1000) + `"`, `{"` + strings.Repeat("k", 1<<16) + `":1}`, "\u2028", "[\"\u2028\"]", `{"__proto__":1,"constructor":2}`,
	}, documents(t)...)
	var input bytes.Buffer
	for _, body := range bodies {
		for _, contentType := range []string{"application/json", "text/plain"} {
			envelope := seal(t, []entry{response("hostile", contentType, body, ""), {ssp: "rival", status: 204}})
			err := readByGo(envelope)
			testsupport.True(t, err == nil, "%.200q: %v", body, err)
			input.WriteString(base64.StdEncoding.EncodeToString(envelope) + "\n")
		}
	}
	for _, r := range readers {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(testsupport.Needs(t, "python3 nodejs jq perl", r.args[0]), r.args[1:]...)
			cmd.Stdin = bytes.NewReader(input.Bytes())
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			testsupport.MustTrue(t, err == nil, "%v: %s", err, stderr.String())
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			testsupport.MustTrue(t, len(lines) == 2*len(bodies), "%d lines for %d envelopes: %s", len(lines), 2*len(bodies), stderr.String())
			for i, line := range lines {
				testsupport.True(t, line == "2 rival", "%.200q: %s", bodies[i/2], line)
			}
		})
	}
}

// readByGo reads an envelope with both of Go's parsers.
func readByGo(envelope []byte) error {
	for name, unmarshal := range map[string]func(v any) error{
		"encoding/json":    func(v any) error { return json.Unmarshal(envelope, v) },
		"encoding/json/v2": func(v any) error { return jsonv2.Unmarshal(envelope, v) },
	} {
		var all any
		if err := unmarshal(&all); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		results, _ := all.(map[string]any)["results"].([]any)
		if len(results) != 2 || results[1].(map[string]any)["ssp"] != "rival" {
			return fmt.Errorf("%s: read as %v", name, all)
		}
	}
	return nil
}

// documents are package syntax's samples: JSON, almost JSON, and JSON that parsers treat
// differently.
func documents(t *testing.T) (all []string) {
	b, err := os.ReadFile("../../wire/syntax/testdata/documents.txt")
	testsupport.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		s, err := strconv.Unquote(strings.TrimSpace(line))
		testsupport.MustTrue(t, err == nil, "%s: %v", line, err)
		all = append(all, s)
	}
	return all
}
