package openrtb

import (
	"encoding/json"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/openrtb"
)

func TestBodiesOfOthers(t *testing.T) {
	t.Parallel()
	samples := readSamples(t)
	t.Run("requests", func(t *testing.T) { t.Parallel(); compareRequests(t, samples) })
	t.Run("responses", func(t *testing.T) { t.Parallel(); compareResponses(t, samples) })
}

// compareRequests compares conditions, removals and shortened addresses with a reading by encoding/json.
func compareRequests(t *testing.T, samples []sample) {
	seen, held, removed, shortened := map[string]bool{}, 0, 0, 0
	for _, s := range samples {
		document := decoded(s.Request)
		if document == nil || seen[string(s.Request)] {
			continue
		}
		seen[string(s.Request)] = true
		paths := map[string]any{"no.such.member": "x", "imp.*.no_such_member": "x"}
		pathsOf(document, nil, paths)
		held += compareConditions(t, &s, document, paths)
		for i, text := range slices.Sorted(maps.Keys(paths)) {
			if (i+len(seen))%8 == 0 { // all would take long
				removed += compareRemoval(t, &s, text)
			}
		}
		shortened += compareAddresses(t, &s)
	}
	t.Logf("%d requests, %d conditions hold, %d removals, %d shortened", len(seen), held, removed, shortened)
	if len(seen) < 1000 || held < 10*len(seen) || removed < len(seen) || shortened < 100 {
		t.Errorf("the samples prove little")
	}
}

// compareConditions returns how many conditions hold.
func compareConditions(t *testing.T, s *sample, document any, paths map[string]any) (held int) {
	var (
		p       openrtb.Paths
		f       openrtb.Facts
		tests   []openrtb.Test
		want    []bool
		details []string
	)
	for text, value := range paths {
		path := openrtb.MustParsePath(text)
		found := members(document, path)
		add := func(op openrtb.Op, holds bool, values ...openrtb.Value) {
			tests = append(tests, p.Condition(&openrtb.Condition{Path: path, Op: op, Values: values}))
			want, details = append(want, holds), append(details, text)
		}
		add(openrtb.Exists, len(found) > 0)
		add(openrtb.Missing, len(found) == 0)
		if isScalar(value) {
			text, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			v, err := openrtb.ParseValue(text)
			if err != nil {
				continue // a number that no configuration may have
			}
			in := slices.ContainsFunc(found, func(v any) bool { return equal(v, value) })
			add(openrtb.In, in, v)
			add(openrtb.NotIn, !in, v)
		}
	}
	p.Scan(s.Request, &f)
	if f.Reason != openrtb.Readable {
		t.Errorf("%s: unreadable: %v", s.Source, f.Reason)
		return 0
	}
	for i := range tests {
		if got := f.Holds(tests[i]); got != want[i] {
			t.Errorf("%s: a condition on %s holds: %v, want %v", s.Source, details[i], got, want[i])
		}
		if want[i] {
			held++
		}
	}
	return held
}

// compareRemoval removes the members at a path. It returns 1 if there was one.
func compareRemoval(t *testing.T, s *sample, text string) int {
	var f openrtb.Facts
	path := openrtb.MustParsePath(text)
	edited, changed := openrtb.NewEdit([]openrtb.Removal{{Path: path}}).Apply(nil, s.Request, &f)
	want := decoded(s.Request)
	if there := len(members(want, path)) > 0; changed != there || f.Reason != openrtb.Readable {
		t.Errorf("%s: %s was removed: %v, want %v (%v)", s.Source, text, changed, there, f.Reason)
	}
	if !changed {
		return 0
	}
	without(want, path)
	if got := decoded(edited); !json.Valid(edited) || !reflect.DeepEqual(got, want) || !isPartOf(edited, s.Request) {
		t.Errorf("%s: without %s it is\n%s", s.Source, text, edited)
	}
	return 1
}

// isPartOf reports whether part is whole without some of its bytes.
func isPartOf(part, whole []byte) bool {
	for _, c := range whole {
		if len(part) > 0 && part[0] == c {
			part = part[1:]
		}
	}
	return len(part) == 0
}

// compareAddresses returns how many addresses were shortened.
func compareAddresses(t *testing.T, s *sample) (n int) {
	var f openrtb.Facts
	want := decoded(s.Request)
	for _, text := range []string{"device", "openrtb.request.context.device"} {
		for _, device := range members(want, strings.Split(text, ".")) {
			for _, name := range []string{"ip", "ipv6"} {
				object, _ := device.(map[string]any)
				value, there := object[name]
				if !there {
					continue
				}
				n++
				address, _ := value.(string)
				a, err := netip.ParseAddr(address)
				if err != nil {
					delete(object, name)
					continue
				}
				bits := 56
				if a.Is4() {
					bits = 24
				}
				prefix, err := a.Prefix(bits)
				if err != nil {
					t.Fatal(err)
				}
				object[name] = prefix.Addr().String()
			}
		}
	}
	edited, changed := openrtb.ShortenAddresses.Apply(nil, s.Request, &f)
	if changed && (!json.Valid(edited) || !reflect.DeepEqual(decoded(edited), want)) || !changed && n > 0 {
		t.Errorf("%s: with shortened addresses it is\n%s", s.Source, edited)
	}
	return n
}
