package adminview

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"adbuffer/internal/setup/config"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/openrtb"
	"adbuffer/internal/wire/syntax"
)

// Mismatch is an expectation of a test that does not hold, with secrets hidden.
type Mismatch struct {
	Key      string // below the test's expect, such as "sent.openx.url"
	Expected string
	Got      string
}

// Judge returns the expectations that do not hold for the explained request.
func (x *Explained) Judge(want *config.Expected) []Mismatch {
	j := judgment{x: x}
	j.routing(want)
	for ssp, how := range want.Filtered {
		got, filtered := x.unasked(ssp)
		j.compare(slices.ContainsFunc(filtered, func(text string) bool { return beginsWith(text, how) }), "filtered."+ssp, how, got)
	}
	for ssp, w := range want.Sent {
		i := slices.IndexFunc(x.SSPs, func(s explainedSSP) bool { return s.SSP == ssp && s.Request != nil })
		if i >= 0 {
			j.sent(i, "sent."+ssp+".", &w)
			continue
		}
		got, _ := x.unasked(ssp)
		j.add("sent."+ssp, "a request", got)
	}
	return j.found
}

// beginsWith reports whether text begins with the whole words of start.
func beginsWith(text, start string) bool {
	rest, ok := strings.CutPrefix(text, start)
	return ok && (rest == "" || strings.ContainsRune(" ,:", rune(rest[0])))
}

// judgment collects the expectations that do not hold for x.
type judgment struct {
	x     *Explained
	found []Mismatch
}

func (j *judgment) add(key, expected, got string) {
	if expected == got {
		got = "another value"
	}
	j.found = append(j.found, Mismatch{key, expected, got})
}

func (j *judgment) compare(holds bool, key, expected, got string) {
	if !holds {
		j.add(key, expected, got)
	}
}

// routing judges everything but what single SSPs get.
func (j *judgment) routing(want *config.Expected) {
	x, e := j.x, j.x.explanation
	if w := want.Route; w != nil && *w != x.Route {
		got := orNone(x.Route, "no route")
		for _, p := range x.Passed {
			if p.Route == *w {
				got += "; " + p.Route + " is passed over: " + strings.Join(p.Failed, "; ")
			}
		}
		j.add("route", orNone(*w, "no route"), got)
	}
	if w := want.Error; w != nil {
		outcome, got := "", "no error"
		if x.Refused != nil && x.Refused.Outcome != exchange.Fill.String() {
			outcome, got = x.Refused.Outcome, x.Refused.Outcome+", since "+x.Refused.Detail
		}
		j.compare(outcome == *w, "error", orNone(*w, "no error"), got)
	}
	if w := want.Deadline; w != nil {
		got := "none"
		if e.BudgetFrom != "" {
			got = e.Budget.String() + " from " + e.BudgetFrom
		}
		if e.IgnoredTmax != "" {
			got += "; tmax is ignored: " + e.IgnoredTmax
		}
		j.compare(*w == e.Budget, "deadline", w.String(), got)
	}
	if w := want.SSPs; w != nil {
		var asked []string
		for i := range x.SSPs {
			if x.SSPs[i].Request != nil {
				asked = append(asked, x.SSPs[i].SSP)
			}
		}
		got := orNone(strings.Join(asked, ", "), "none")
		for _, ssp := range w {
			if !slices.Contains(asked, ssp) {
				why, _ := x.unasked(ssp)
				got += "; " + ssp + ": " + why
			}
		}
		j.compare(slices.Equal(asked, w), "ssps", orNone(strings.Join(w, ", "), "none"), got)
	}
}

func orNone(text, none string) string {
	if text == "" {
		return none
	}
	return text
}

// unasked says why an SSP gets no request, and which conditions keep it from the SSP.
func (x *Explained) unasked(ssp string) (why string, filtered []string) {
	for i := range x.SSPs {
		switch s := &x.SSPs[i]; {
		case s.SSP != ssp:
		case s.Request != nil:
			return "a request", nil
		case len(s.Filtered) > 0:
			return strings.Join(s.Filtered, "; "), s.Filtered
		default:
			return s.Error, nil
		}
	}
	if r := x.Refused; r != nil && len(x.SSPs) == 0 {
		return "no request, since " + r.Detail, nil
	}
	for _, t := range x.explanation.Route.Targets {
		if t.SSP.Name() == ssp {
			return "no request: route " + x.Route + " with mode " + x.Mode + " asks another SSP", nil
		}
	}
	if m := x.explanation.Route.Mirror; m != nil && m.SSP.Name() == ssp {
		return "no request: it is the mirror of route " + x.Route + ", and tests do not judge copies", nil
	}
	return "no request: route " + x.Route + " has no such SSP", nil
}

// sent judges the request to the SSP with index i. key is where it is expected.
func (j *judgment) sent(i int, key string, want *config.SentRequest) {
	q := &j.x.explanation.Requests[i]
	fields, hides := valuesOf(&q.Request), q.Target.SSP.Policy().Sets
	for name, w := range want.Headers {
		got := fields[strings.ToLower(name)]
		text := strings.Join(got, ", ")
		shown := fieldView(name, text, hides)
		if got == nil {
			shown = "no such field"
		}
		j.compare(got != nil && text == w, key+"headers."+name, fieldView(name, w, hides), shown)
	}
	for i, name := range want.NoHeaders {
		got := fields[strings.ToLower(name)]
		j.compare(got == nil, fmt.Sprintf("%sno_headers[%d]", key, i), "no field "+name, fieldView(name, strings.Join(got, ", "), hides))
	}
	url, shown := q.Request.Scheme+"://"+string(q.Request.Authority)+string(q.Request.Target), j.x.SSPs[i].Request.URL
	if config.HideURL(want.URL) == config.HideURL(url) {
		shown = "another value in the query"
	}
	j.compare(want.URL == "" || want.URL == url, key+"url", config.HideURL(want.URL), shown)
	if len(want.Absent) == 0 && len(want.Values) == 0 {
		return
	}
	body, err := documentOf(q.Request.Body, fields["content-encoding"])
	if err != nil {
		j.add(strings.TrimSuffix(key, "."), "a body in JSON", err.Error())
		return
	}
	for i, path := range want.Absent {
		members := membersAt(body, strings.Split(path, "."))
		j.compare(len(members) == 0, fmt.Sprintf("%sabsent[%d]", key, i), "no "+path, seen(path, members))
	}
	for path, w := range want.Values {
		members := membersAt(body, strings.Split(path, "."))
		differs := slices.ContainsFunc(members, func(m any) bool { return !equals(m, w) })
		j.compare(len(members) > 0 && !differs, key+"values."+path, w.Shown(path), seen(path, members))
	}
}

// valuesOf returns the values of q's fields, and of Host, by their names in lower case.
func valuesOf(q *exchange.Request) map[string][]string {
	all := map[string][]string{"host": {string(q.Authority)}}
	for name, value := range syntax.Fields(q.Fields) {
		lower := strings.ToLower(string(name))
		all[lower] = append(all[lower], string(value))
	}
	return all
}

// maxJudgedBody bounds a body that is decoded to be judged.
const maxJudgedBody = 64 << 20

// documentOf decodes a body that has the given content codings, and returns the JSON document in it.
func documentOf(body []byte, codings []string) (document any, err error) {
	if len(body) == 0 {
		return nil, errors.New("no body")
	}
	switch coding := strings.Join(codings, ", "); {
	case coding == "" || coding == "identity":
	case openrtb.CanDecode([]byte(coding)):
		d := openrtb.AcquireDecoder()
		defer d.Release()
		body, err = d.Decode([]byte(coding), body, maxJudgedBody)
		if err == nil && len(body) > maxJudgedBody {
			err = errors.New("a compressed body that is too large to be decoded")
		}
		if err != nil {
			return nil, err
		}
	default:
		return nil, errors.New("a body with the content coding " + coding)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if document, err = decodeValue(d); err != nil {
		return nil, errors.New("a body that cannot be judged: " + err.Error())
	}
	if _, err = d.Token(); err != io.EOF { //nolint:errorlint // the decoder wraps nothing
		return nil, errors.New("a body that cannot be judged: bytes follow the document")
	}
	return document, nil
}

// decodeValue decodes the next value. Unlike d.Decode, it returns an error if an object has two members of one name, of
// which readers may take either.
func decodeValue(d *json.Decoder) (any, error) {
	token, err := d.Token()
	switch token {
	case json.Delim('{'):
		object := map[string]any{}
		for err == nil && d.More() {
			var name json.Token
			if name, err = d.Token(); err != nil {
				break
			}
			if _, twice := object[name.(string)]; twice {
				return nil, fmt.Errorf("the member %s is there twice", name)
			}
			object[name.(string)], err = decodeValue(d)
		}
		if err == nil {
			_, err = d.Token() // the closing brace
		}
		return object, err
	case json.Delim('['):
		array := []any{}
		for err == nil && d.More() {
			var element any
			element, err = decodeValue(d)
			array = append(array, element)
		}
		if err == nil {
			_, err = d.Token() // the closing bracket
		}
		return array, err
	}
	return token, err
}

// membersAt returns the values at path below v. In an array, the name "*" is every element, and a number the element
// with this index from 0.
func membersAt(v any, path []string) (all []any) {
	if len(path) == 0 {
		return []any{v}
	}
	switch v := v.(type) {
	case map[string]any:
		if member, ok := v[path[0]]; ok {
			return membersAt(member, path[1:])
		}
	case []any:
		for i, element := range v {
			if path[0] == openrtb.AnyElement || path[0] == strconv.Itoa(i) {
				all = append(all, membersAt(element, path[1:])...)
			}
		}
	}
	return all
}

// equals compares as conditions do: 1.0 equals 1.
func equals(member any, want config.JSONValue) bool {
	got, err := openrtb.ParseValue(jsonOf(member))
	w, _ := openrtb.ParseValue([]byte(want)) // the configuration has checked it
	return err == nil && got == w
}

// jsonOf encodes what was decoded.
func jsonOf(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("BUG: a value of a document is no JSON: " + err.Error())
	}
	return text
}

// seen describes the values of members at path.
func seen(path string, members []any) string {
	const most = 5
	var s openrtb.Seen
	for _, m := range members[:min(len(members), most)] {
		s.Values = append(s.Values, jsonOf(withoutSecrets(m)))
	}
	s.More = len(members) > most
	return valuesSeen(path, &s)
}

// withoutSecrets returns v without the values of members whose names suggest a secret.
func withoutSecrets(v any) any {
	switch v := v.(type) {
	case map[string]any:
		shown := map[string]any{}
		for name, member := range v {
			shown[name] = withoutSecrets(member)
			if header.NamesSecret(name) {
				shown[name] = config.Hidden
			}
		}
		return shown
	case []any:
		shown := make([]any, len(v))
		for i, element := range v {
			shown[i] = withoutSecrets(element)
		}
		return shown
	}
	return v
}
