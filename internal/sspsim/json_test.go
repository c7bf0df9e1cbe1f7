package sspsim

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// fullBehaviour sets every field to a value that is valid and not zero.
func fullBehaviour() Behaviour {
	one := Chance{Share: 0.25, Every: 3}
	return Behaviour{
		Latency: Latency{Distribution: Distribution{P50: 80 * time.Millisecond, P99: 250 * time.Millisecond, Max: time.Second},
			Slow: Distribution{Constant: 2 * time.Second}, SlowShare: 0.01},
		Answer: Answer{NoBid: one, NoBidForm: NoBidDocument, Kind: VAST, Size: Size{P50: 1000, P95: 9000, Max: 20000},
			ContentType: "text/xml", Echo: true, Headers: []Field{{"Alt-Svc", "clear"}, {"X", ""}},
			HTTP10: one, ReadToEOF: one, Chunked: one, Trailers: one, Interim: one, Cookies: one},
		Connections: Connections{MaxRequests: 100, Announce: true, IdleTimeout: 90 * time.Second, MaxStreams: -1,
			PipelineOverlap: true, HTTP1Only: one},
		Faults: Faults{Refuse: true, BlackHole: true, Hang: one, Stall: one, Reset: one, CutHead: one, CutBody: one,
			RefuseStream: one, ResetStream: ResetStream{one, "CANCEL", true}, GoAway: GoAway{one, "NO_ERROR", true},
			Status: Status{one, 429, 2 * time.Second, true}, Drip: Drip{one, 10, time.Millisecond},
			Unsolicited: Unsolicited{one, time.Second}, Leftover: one, OversizedHead: Oversized{one, 1000},
			OversizedBody: Oversized{one, 2000}, Malformed: Malformed{one, []Malformation{ObsFold, H2Garbage}}},
	}
}

func TestEveryKeySurvivesJSON(t *testing.T) {
	want := fullBehaviour()
	wantNoZero(t, "", reflect.ValueOf(want))
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Behaviour
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, part := range []string{`"p50":"80ms"`, `"idle_timeout":"1m30s"`, `"code":"CANCEL"`, `"share":0.25,"every":3`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("%s is not in %s", part, text)
		}
	}
}

// wantNoZero fails for fields that fullBehaviour forgets, and for those
// without a key.
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
		case f.IsZero() && name != ".Answer.Size.Constant":
			t.Errorf("%s is not set", name)
		}
	}
}

func TestAllThatIsWrongWithABehaviourIsReportedAtOnce(t *testing.T) {
	before := Behaviour{Latency: Constant(time.Second)}
	b := before
	err := json.Unmarshal([]byte(`{
		"latency": {"constant": 80, "p50": "80", "slow": {"p99": null}, "slow_share": 1.5},
		"answer": {"size": {"constant": "big"}, "kind": "gif", "echo": 1, "no_bid_form": "shrug", "headers": [{"name": "a b"}, {"name": "Content-Length"}, 7]},
		"connections": {"max_requests": 1.5, "max_requests": 2, "MAX_STREAMS": 7, "max_streams": -7},
		"faults": {"reset": {"share": -1, "evry": 2}, "stall": [], "goaway": {"code": "NOPE"}, "status": {"code": 99}, "malformed": {"kinds": ["rot13"]},
			"hang": {"every": -1}, "oversized_body": {"bytes": 99999999999}, "drip": {"pause": "-1s"}},
		"fault": {}
	}`), &b)
	var invalid *InvalidError
	if !errors.As(err, &invalid) {
		t.Fatalf("got %v", err)
	}
	want := []string{
		`latency.constant: 80 has no unit; write for example "80ms"`,
		`latency.p50: "80" is not a duration with a unit`,
		`latency.slow.p99: null is no value`,
		`answer.size.constant: "big" is not a whole number`,
		`answer.echo: 1 is not true or false`,
		`answer.headers[2]: 7 is not an object`,
		`connections.max_requests: 1.5 is not a whole number`,
		`connections.max_requests: is there twice`,
		`connections.MAX_STREAMS: unknown key; connections has max_requests, announce,`,
		`faults.reset.evry: unknown key; faults.reset has share, every`,
		`faults.stall: [] is not an object`,
		`fault: unknown key; behaviour has latency, answer, connections, faults`,
		`latency.slow_share: 1.5 is not within 0 to 1`,
		`answer.no_bid_form: "shrug" is not one of`,
		`answer.kind: "gif" is not one of`,
		`answer.headers[0]: "a b": "" is not a header field`,
		`answer.headers[1]: Content-Length is the simulator's own`,
		`answer.headers[2]: "": "" is not a header field`,
		`connections.max_streams: -7 is not within -1 to 4096`,
		`faults.hang.every: -1 is not within`,
		`faults.reset.share: -1 is not within 0 to 1`,
		`faults.goaway.code: "NOPE" is not an error code`,
		`faults.status.code: 99 is not within 200 to 599`,
		`faults.drip.pause: -1s is not within`,
		`faults.oversized_body.bytes: 99999999999 is not within`,
		`faults.malformed.kinds[0]: "rot13" is not a malformation`,
	}
	for _, w := range want {
		found := false
		for _, m := range invalid.Mistakes {
			found = found || strings.HasPrefix(m, w)
		}
		if !found {
			t.Errorf("not reported: %s", w)
		}
	}
	if len(invalid.Mistakes) != len(want) {
		t.Errorf("%d mistakes, want %d:\n%s", len(invalid.Mistakes), len(want), strings.Join(invalid.Mistakes, "\n"))
	}
	if !reflect.DeepEqual(b, before) {
		t.Errorf("a wrong behaviour was taken over in part: %+v", b)
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
		{Behaviour{Answer: Answer{Size: Size{Constant: 1, P50: 1, P95: 1}}}, "answer.size: constant 1 stands alone"},
		{Behaviour{Answer: Answer{Size: Size{P95: 5}}}, "answer.size: p50 0 and p95 5 are set together"},
		{Behaviour{Answer: Answer{Size: Size{P50: 5, P95: 4}}}, "answer.size.p95: 4 is below p50 5"},
		{Behaviour{Answer: Answer{Size: Size{P50: 5, P95: 6, Max: 4}}}, "answer.size.max: 4 is below p50 5"},
		{Behaviour{Answer: Answer{ContentType: "a\r\nb"}}, "answer.content_type: "},
	} {
		if err := v.b.Validate(); err == nil || !strings.HasPrefix(err.Error(), v.want) || strings.Contains(err.Error(), "; ") {
			t.Errorf("got %v, want %s", err, v.want)
		}
	}
}

func FuzzBehaviourJSON(f *testing.F) {
	full, _ := json.Marshal(fullBehaviour())
	for _, seed := range []string{string(full), `{}`, ` {"latency":{"constant":"1s"}} `, `null`, `[]`, `{"faults":{"reset":{"share":1e400}}}`,
		`{"answer":{"headers":[{}]}}`, `{"latency":null}`, `{"answer":{"size":{"constant":1.0}}}`, `{`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var b Behaviour
		if err := b.UnmarshalJSON(text); err != nil {
			if !reflect.DeepEqual(b, Behaviour{}) {
				t.Fatalf("changed in spite of %v", err)
			}
			return
		}
		again, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		var c Behaviour
		if err := json.Unmarshal(again, &c); err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if third, _ := json.Marshal(c); string(third) != string(again) {
			t.Fatalf("%s became %s", again, third)
		}
	})
}
