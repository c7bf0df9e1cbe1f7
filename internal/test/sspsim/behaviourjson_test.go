package sspsim

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// fullBehaviour sets every field to a valid value that is not zero.
func fullBehaviour() Behaviour {
	one := Chance{Share: 0.25, Every: 3}
	return Behaviour{
		Latency: Latency{Distribution: Distribution{P50: Duration(80 * time.Millisecond), P99: Duration(250 * time.Millisecond), Max: Duration(time.Second)},
			Slow: Distribution{Constant: Duration(2 * time.Second)}, SlowShare: 0.01, Capacity: 100},
		Response: Response{NoBid: one, NoBidForm: NoBidDocument, FillBy: []string{"site", "slot"}, Kind: VAST, Size: Size{P50: 1000, P95: 9000, Max: 20000},
			Echo: true, Headers: []Field{{"Alt-Svc", "clear"}, {"X", ""}},
			HTTP10: one, ReadToEOF: one, Chunked: one, Trailers: one, Interim: one, Cookies: one},
		Connections: Connections{MaxRequests: 100, Announce: true, IdleTimeout: Duration(90 * time.Second), MaxStreams: -1, MaxField: 8192,
			PipelineOverlap: true, HTTP1Only: one},
		Faults: Faults{Refuse: true, BlackHole: true, Hang: one, Stall: one, Reset: one, CutHead: one, CutBody: one,
			RefuseStream: one, ResetStream: ResetStream{one, "CANCEL", true}, GoAway: GoAway{one, "NO_ERROR", true},
			Status: Status{one, 429, Duration(2 * time.Second), true}, Drip: Drip{one, 10, Duration(time.Millisecond)},
			Leftover: one, OversizedHead: Oversized{one, 1000},
			OversizedBody: Oversized{one, 2000}, Malformed: Malformed{one, []Malformation{ObsFold, H2Garbage}}},
	}
}

// wantNoZero fails for fields that fullBehaviour does not set, and for fields without a key.
func wantNoZero(t *testing.T, path string, v reflect.Value) {
	for i := range v.NumField() {
		f, name := v.Field(i), path+"."+v.Type().Field(i).Name
		switch {
		case v.Type().Field(i).Tag.Get("json") == "" && !v.Type().Field(i).Anonymous:
			t.Errorf("%s has no JSON key", name)
		case f.Kind() == reflect.Struct:
			if f.Type() == reflect.TypeFor[Distribution]() { // has two forms
				continue
			}
			wantNoZero(t, name, f)
		case f.IsZero() && name != ".Response.Size.Constant":
			t.Errorf("%s is not set", name)
		}
	}
}

// The control endpoint and `adbuffer sim` read and write this JSON, so it must not change.
func TestJSONOfABehaviour(t *testing.T) {
	wantNoZero(t, "", reflect.ValueOf(fullBehaviour()))
	for file, b := range map[string]Behaviour{"behaviour-full.json": fullBehaviour(), "behaviour-healthy.json": {}} {
		want, err := os.ReadFile(filepath.Join("testdata", file))
		testsupport.NoError(t, err)
		got, err := json.MarshalIndent(b, "", "  ")
		testsupport.True(t, err == nil && string(got)+"\n" == string(want), "%s: %v, got\n%s", file, err, got)
		var read Behaviour
		if err := json.Unmarshal(want, &read); err != nil || !reflect.DeepEqual(read, b) {
			t.Errorf("%s: read %+v, %v", file, read, err)
		}
	}
}

// wantRefused checks that text is refused with the errors want, in this order, and changes nothing.
func wantRefused(t *testing.T, text string, want ...string) {
	t.Helper()
	before := Behaviour{Latency: Constant(time.Second), Response: Response{Headers: []Field{{"A", "1"}}}}
	b := before
	var invalid *InvalidError
	if err := json.Unmarshal([]byte(text), &b); !errors.As(err, &invalid) {
		t.Errorf("%s: got %v", text, err)
		return
	}
	for _, w := range want {
		if !slices.ContainsFunc(invalid.Mistakes, func(m string) bool { return strings.HasPrefix(m, w) }) {
			t.Errorf("%s: not reported: %s", text, w)
		}
	}
	if len(invalid.Mistakes) != len(want) {
		t.Errorf("%s: %d mistakes, want %d:\n%s", text, len(invalid.Mistakes), len(want), strings.Join(invalid.Mistakes, "\n"))
	}
	testsupport.True(t, reflect.DeepEqual(b, before), "%s was taken over in part: %+v", text, b)
}

func TestValuesOutOfRangeAreReportedTogether(t *testing.T) {
	wantRefused(t, `{
		"latency": {"slow_share": 1.5, "capacity": -1},
		"response": {"kind": "gif", "no_bid_form": "shrug", "headers": [{"name": "a b"}, {"name": "Content-Length"}, {}]},
		"connections": {"max_streams": -7},
		"faults": {"reset": {"share": -1}, "goaway": {"code": "NOPE"}, "status": {"code": 99}, "malformed": {"kinds": ["rot13"]},
			"hang": {"every": -1}, "oversized_body": {"bytes": 99999999999}, "drip": {"pause": "-1s"}}
	}`,
		`latency.slow_share: 1.5 is not within 0 to 1`,
		`latency.capacity: -1 is not within 0 to`,
		`response.no_bid_form: "shrug" is not one of`,
		`response.kind: "gif" is not one of`,
		`response.headers[0]: "a b": "" is not a header field`,
		`response.headers[1]: Content-Length is the simulator's own`,
		`response.headers[2]: "": "" is not a header field`,
		`connections.max_streams: -7 is not within -1 to 4096`,
		`faults.hang.every: -1 is not within`,
		`faults.reset.share: -1 is not within 0 to 1`,
		`faults.goaway.code: "NOPE" is not an error code`,
		`faults.status.code: 99 is not within 200 to 599`,
		`faults.drip.pause: -1s is not within`,
		`faults.oversized_body.bytes: 99999999999 is not within`,
		`faults.malformed.kinds[0]: "rot13" is not a malformation`,
	)
}

func TestMalformedBehavioursAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"latency":{"constant":80}}`:              `80 is not a duration with a unit, such as "80ms"`,
		`{"latency":{"p50":"80"}}`:                 `"80" is not a duration with a unit`,
		`{"latency":{"slow":{"p99":null}}}`:        `null is not a duration`,
		`{"response":{"size":{"constant":"big"}}}`: `cannot unmarshal string`,
		`{"response":{"echo":1}}`:                  `cannot unmarshal number`,
		`{"response":{"headers":[7]}}`:             `cannot unmarshal number`,
		`{"connections":{"max_requests":1.5}}`:     `cannot unmarshal number 1.5`,
		`{"faults":{"stall":[]}}`:                  `cannot unmarshal array`,
		`{"faults":{"reset":{"evry":2}}}`:          `unknown key "evry"; the keys are after_head, announce, black_hole,`,
		`{"fault":{}}`:                             `unknown key "fault"; the keys are after_head,`,
		`{"latency":{"constant":"1s"},"fault":1}`:  `unknown key "fault"`,
		`[]`: `cannot unmarshal array`,
	} {
		wantRefused(t, text, want)
	}
	var b Behaviour
	for _, text := range []string{`{`, ``, `{} {}`, `{"latency":{}`} {
		if err := b.UnmarshalJSON([]byte(text)); err == nil || !reflect.DeepEqual(b, Behaviour{}) {
			t.Errorf("%q: %v, %+v", text, err, b)
		}
	}
}

// A key that is present replaces the value, a list as a whole. A key that is absent keeps the
// value.
func TestJSONOverABehaviour(t *testing.T) {
	b := fullBehaviour()
	testsupport.NoError(t, b.UnmarshalJSON([]byte(`{"response":{"headers":[{"name":"B"}]},"faults":{"status":{"code":404}}}`)))
	want := fullBehaviour()
	want.Response.Headers, want.Faults.Status.Code = []Field{{"B", ""}}, 404
	testsupport.True(t, reflect.DeepEqual(b, want), "got  %+v\nwant %+v", b, want)
	if err := b.UnmarshalJSON([]byte(`{"response":{"headers":[]}}`)); err != nil || len(b.Response.Headers) != 0 || len(b.Faults.Malformed.Kinds) != 2 {
		t.Errorf("%v, %+v", err, b)
	}
}

func TestDistributionsAreCheckedForSense(t *testing.T) {
	for _, v := range []struct {
		b    Behaviour
		want string
	}{
		{Behaviour{Latency: Latency{Distribution: Distribution{Constant: 1, P50: 1, P99: 1}}}, "latency: constant 1ns stands alone"},
		{Behaviour{Latency: Lognormal(time.Second, 0)}, "latency: p50 1s and p99 0s are set together"},
		{Behaviour{Latency: Lognormal(time.Second, time.Millisecond)}, "latency.p99: 1ms is below p50 1s"},
		{Behaviour{Latency: Latency{Distribution: Distribution{P50: 2, P99: 3, Max: 1}}}, "latency.max: 1ns is below p50"},
		{Behaviour{Latency: Constant(time.Hour)}, "latency.constant: 1h0m0s is not within"},
		{Behaviour{Latency: Latency{Slow: Distribution{Constant: 1}}}, "latency.slow: is never drawn"},
		{Behaviour{Response: Response{Size: Size{Constant: 1, P50: 1, P95: 1}}}, "response.size: constant 1 stands alone"},
		{Behaviour{Response: Response{Size: Size{P95: 5}}}, "response.size: p50 0 and p95 5 are set together"},
		{Behaviour{Response: Response{Size: Size{P50: 5, P95: 4}}}, "response.size.p95: 4 is below p50 5"},
		{Behaviour{Response: Response{Size: Size{P50: 5, P95: 6, Max: 4}}}, "response.size.max: 4 is below p50 5"},
	} {
		if err := v.b.Validate(); err == nil || !strings.HasPrefix(err.Error(), v.want) || strings.Contains(err.Error(), "; ") {
			t.Errorf("got %v, want %s", err, v.want)
		}
	}
}
