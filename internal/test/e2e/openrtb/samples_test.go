package openrtb

import (
	"bytes"
	"encoding/json"
	"maps"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/wire/openrtb"

	"adbuffer/internal/test/testsupport"
)

func TestBodiesOfOthers(t *testing.T) {
	t.Parallel()
	samples := readSamples(t)
	t.Run("requests", func(t *testing.T) { t.Parallel(); compareRequests(t, samples) })
	t.Run("sets", func(t *testing.T) { t.Parallel(); compareSets(t, samples) })
	t.Run("jq", func(t *testing.T) { t.Parallel(); compareWithJQ(t, samples) })
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
			if (i+len(seen))%32 == 0 { // all would take long
				removed += compareRemoval(t, &s, text)
			}
		}
	}
	t.Logf("%d requests, %d removals", len(seen), removed)
	testsupport.True(t, len(seen) >= 1000 && removed >= len(seen)/4, "the samples prove little")
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

// compareSets sets members of requests, and compares with an editor of what encoding/json reads. The bytes around the
// changed value stay.
func compareSets(t *testing.T, samples []sample) {
	seen, done := map[string]bool{}, map[openrtb.Reason]int{}
	for _, s := range samples {
		document := decoded(s.Request)
		if document == nil || seen[string(s.Request)] {
			continue
		}
		seen[string(s.Request)] = true
		paths := map[string]any{"source.schain.nodes": nil, "source": nil, "user.ext.no.such": nil, "id": nil, "imp": nil}
		pathsOf(document, nil, paths)
		for i, text := range slices.Sorted(maps.Keys(paths)) {
			if !strings.Contains(text, "*") && (i+len(seen))%64 == 0 { // all would take long
				for how := range openrtb.Append + 1 {
					done[compareSet(t, &s, text, how)]++
				}
			}
		}
	}
	t.Logf("%d requests, %v", len(seen), done)
	testsupport.True(t, len(seen) >= 1000 && done[openrtb.Readable] >= len(seen)/4 && done[openrtb.WrongType] >= len(seen)/16, "the samples prove little")
}

func compareSet(t *testing.T, s *sample, text string, how openrtb.How) openrtb.Reason {
	var f openrtb.Facts
	const value = `{"added":[true]}`
	path := openrtb.MustParsePath(text)
	edited, changed := openrtb.NewEdit(nil, openrtb.Set{Path: path, How: how, Value: []byte(value)}).Apply(nil, s.Request, &f)
	want := decoded(s.Request)
	object, parent, last := want, s.Request, len(path)-1
	for _, name := range path[:last] {
		below, there := object[name]
		if !there {
			below = map[string]any{}
			object[name] = below
		}
		parent = rawMember(parent, name)
		var is bool
		if object, is = below.(map[string]any); !is {
			testsupport.Equal(t, f.Reason, openrtb.WrongType, "%[2]s: %[3]s is %[1]v", s.Source, text)
			return openrtb.WrongType
		}
	}
	old, there := object[path[last]]
	before := rawMember(parent, path[last])
	list, isList := old.([]any)
	switch {
	case how == openrtb.Append && there && !isList:
		testsupport.Equal(t, f.Reason, openrtb.WrongType, "%[2]s: %[3]s is %[1]v", s.Source, text)
		return openrtb.WrongType
	case how == openrtb.Append:
		object[path[last]], before = append(list, decoded([]byte(value))), nil
	case how == openrtb.Default && there:
		testsupport.True(t, !changed && f.Reason == openrtb.Readable, "%s: %s was set (%v)", s.Source, text, f.Reason)
		return openrtb.Readable
	default:
		object[path[last]] = decoded([]byte(value))
	}
	if got := decoded(edited); f.Reason != openrtb.Readable || !json.Valid(edited) || !reflect.DeepEqual(got, want) || around(s.Request, edited) < len(s.Request)-len(before) {
		t.Errorf("%s: with %s set (%v, %v) it is\n%s", s.Source, text, how, f.Reason, edited)
	}
	return f.Reason
}

// rawMember returns the text of a member of an object, or nil.
func rawMember(object json.RawMessage, name string) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(object, &members) != nil {
		return nil
	}
	return members[name]
}

// around returns how many bytes a and b share at their begin and at their end.
func around(a, b []byte) int {
	begin, end := 0, 0
	for begin < min(len(a), len(b)) && a[begin] == b[begin] {
		begin++
	}
	for end < min(len(a), len(b))-begin && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	return begin + end
}

// compareWithJQ removes and sets members of all requests at once, and compares with what jq makes of them.
func compareWithJQ(t *testing.T, samples []sample) {
	const filter = `. as $in
		| del(.device.ifa, .user.eids, .imp[]?.ext)
		| if .source.schain == null then .source.schain = {ver: "1.0", complete: 1, nodes: []} else . end
		| .source.schain.nodes += [{asi: "exchange.example", sid: "1234", hp: 1}]
		| if any($in.imp[]?; has("video")) then .ext.partner = 17 else . end
		| .at = 2`
	path := openrtb.MustParsePath
	edit := openrtb.NewEdit([]openrtb.Removal{{Path: path("device.ifa")}, {Path: path("user.eids")}, {Path: path("imp.*.ext")}},
		openrtb.Set{Path: path("source.schain"), How: openrtb.Default, Value: []byte(`{"ver":"1.0","complete":1,"nodes":[]}`)},
		openrtb.Set{Path: path("source.schain.nodes"), How: openrtb.Append, Value: []byte(`{"asi":"exchange.example","sid":"1234","hp":1}`)},
		openrtb.Set{Path: path("ext.partner"), Value: []byte("17"), When: []openrtb.Condition{{Path: path("imp.*.video")}}},
		openrtb.Set{Path: path("at"), Value: []byte("2")})
	var (
		f              openrtb.Facts
		input          bytes.Buffer
		sources, edits []string
	)
	seen := map[string]bool{}
	for _, s := range samples {
		if decoded(s.Request) == nil || seen[string(s.Request)] {
			continue
		}
		seen[string(s.Request)] = true
		edited, _ := edit.Apply(nil, s.Request, &f)
		testsupport.MustEqual(t, f.Reason, openrtb.Readable, "%[2]s is %[1]v", s.Source)
		sources, edits = append(sources, s.Source), append(edits, string(edited))
		input.Write(append(s.Request, '\n'))
	}
	cmd := exec.Command(testsupport.Needs(t, "jq", "jq"), "-c", filter)
	cmd.Stdin = &input
	out, err := cmd.Output()
	testsupport.NoError(t, err)
	results := strings.Split(strings.TrimSpace(string(out)), "\n")
	testsupport.MustTrue(t, len(results) == len(edits) && len(edits) >= 1000, "jq made %d documents of %d", len(results), len(edits))
	for i, result := range results {
		var want, got any
		testsupport.MustTrue(t, json.Unmarshal([]byte(result), &want) == nil && json.Unmarshal([]byte(edits[i]), &got) == nil, "%s: jq made %s, adbuffer %s", sources[i], result, edits[i])
		testsupport.True(t, reflect.DeepEqual(got, want), "%s: jq made\n%s\nadbuffer\n%s", sources[i], result, edits[i])
	}
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
