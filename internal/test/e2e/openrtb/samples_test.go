package openrtb

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"

	"adbuffer/internal/wire/openrtb"

	"adbuffer/internal/test/testsupport"
)

func TestBodiesOfOthers(t *testing.T) {
	t.Parallel()
	samples := readSamples(t)
	t.Run("requests", func(t *testing.T) { t.Parallel(); compareRequests(t, samples) })
	t.Run("responses", func(t *testing.T) { t.Parallel(); compareResponses(t, samples) })
}

// compareRequests removes members of requests, and compares with a reading by encoding/json. The fuzz tests
// of package openrtb compare conditions and addresses so.
func compareRequests(t *testing.T, samples []sample) {
	seen, removed := map[string]bool{}, 0
	for _, s := range samples {
		document := decoded(s.Request)
		if document == nil || seen[string(s.Request)] {
			continue
		}
		seen[string(s.Request)] = true
		paths := map[string]any{"no.such.member": nil, "imp.*.no_such_member": nil}
		pathsOf(document, nil, paths)
		for i, text := range slices.Sorted(maps.Keys(paths)) {
			if (i+len(seen))%8 == 0 { // all would take long
				removed += compareRemoval(t, &s, text)
			}
		}
	}
	t.Logf("%d requests, %d removals", len(seen), removed)
	testsupport.True(t, len(seen) >= 1000 && removed >= len(seen), "the samples prove little")
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
