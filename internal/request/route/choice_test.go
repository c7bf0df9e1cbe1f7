package route

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// choose runs a request through a table of one route with the SSPs a and b. It returns the chosen
// SSP ("-" for none) and the remaining query.
func choose(t *testing.T, mayChoose bool, target string, lines ...string) (string, error) {
	t.Helper()
	rt := newRoute(Waterfall, newFake(t, "a", silent), newFake(t, "b", silent))
	rt.Match.Path, rt.ClientChoice = "/fill", mayChoose
	l := lookup(t, "h", target, lines...)
	found, fromPath := NewTable([]*Route{rt}).Find(l, new(Search))
	if found == nil {
		return "no route", nil
	}
	var scratch []byte
	chosen, query, err := found.Choose(l, fromPath, &scratch)
	if err != nil {
		testsupport.True(t, chosen == nil, "%s: an SSP with the error %v", target, err)
		return "", err
	}
	name := "-"
	if chosen != nil {
		name = chosen.SSP.Name()
	}
	return name + "?" + string(query), nil
}

func TestClientsChoice(t *testing.T) {
	header := func(v string) []string { return []string{"X-Adbuffer-Ssp: " + v} }
	for _, tt := range []struct {
		target string
		lines  []string
		want   string
		err    error
	}{
		{"/fill", nil, "-?", nil},
		{"/fill?a=1&b", nil, "-?a=1&b", nil},
		{"/fill/b", nil, "b?", nil},
		{"/fill/b?x=%20&&y", nil, "b?x=%20&&y", nil},
		{"/fill?ssp=a", nil, "a?", nil},
		{"/fill?x&ssp=a&y=%zz", nil, "a?x&y=%zz", nil},
		{"/fill?x", header("b"), "b?x", nil},
		{"/fill", header(" b\t"), "b?", nil},

		{"/fill/b?x&ssp=b", header("b"), "b?x", nil}, // all agree
		{"/fill/b?ssp=a", nil, "", ErrChoiceConflict},
		{"/fill/b", header("a"), "", ErrChoiceConflict},
		{"/fill?ssp=a", header("b"), "", ErrChoiceConflict},
		{"/fill/a?ssp=a", header("b"), "", ErrChoiceConflict},
		{"/fill/a?ssp=A", nil, "", ErrChoiceConflict},
		{"/fill/a?ssp=", nil, "", ErrChoiceConflict},
		{"/fill/a?ssp", nil, "", ErrChoiceConflict},

		{"/fill?ssp=a&ssp=a", nil, "", ErrChoiceRepeated},
		{"/fill?ssp=a&x&ssp=b", nil, "", ErrChoiceRepeated},
		{"/fill?ssp&ssp", nil, "", ErrChoiceRepeated},
		{"/fill", []string{"X-Adbuffer-Ssp: a", "x-adbuffer-ssp: a"}, "", ErrChoiceRepeated},

		{"/fill?ssp=%61", nil, "", ErrChoiceEncoded},
		{"/fill?ssp=a%", nil, "", ErrChoiceEncoded},
		{"/fill?ssp=%", nil, "", ErrChoiceEncoded},

		{"/fill?s%73p=a", nil, "-?s%73p=a", nil}, // an encoded key is no control parameter
		{"/fill?ssp=a&%73sp=b", nil, "a?%73sp=b", nil},
		{"/fill?SSP=a", nil, "-?SSP=a", nil},
		{"/fill?xssp=a&sspx=a&x=ssp=a", nil, "-?xssp=a&sspx=a&x=ssp=a", nil},
		{"/fill?;ssp=a", nil, "-?;ssp=a", nil},

		{"/fill/c", nil, "", ErrUnknownSSP},
		{"/fill/A", nil, "", ErrUnknownSSP},
		{"/fill/%61", nil, "", ErrUnknownSSP},
		{"/fill?ssp=c", nil, "", ErrUnknownSSP},
		{"/fill?ssp=", nil, "", ErrUnknownSSP},
		{"/fill?ssp", nil, "", ErrUnknownSSP},
		{"/fill?ssp==a", nil, "", ErrUnknownSSP},
		{"/fill?ssp=a+", nil, "", ErrUnknownSSP},
		{"/fill?ssp=a,b", nil, "", ErrUnknownSSP},
		{"/fill", header(""), "", ErrUnknownSSP},
		{"/fill", header("a, b"), "", ErrUnknownSSP},
		{"/fill", header("%61"), "", ErrUnknownSSP},
		{"/fill?ssp=http://evil.example", nil, "", ErrUnknownSSP},

		{"/fill//b", nil, "no route", nil},
		{"/fill/b/", nil, "no route", nil},
		{"/fill/../fill/b", nil, "no route", nil},
	} {
		t.Run(tt.target+strings.Join(tt.lines, ""), func(t *testing.T) {
			got, err := choose(t, true, tt.target, tt.lines...)
			testsupport.True(t, errors.Is(err, tt.err), "error %v, want %v", err, tt.err)
			want(t, "choice", got, tt.want)
		})
	}
}

// If clients may not choose, no parameter is a control parameter, and no name is looked up.
func TestNoChoiceLeavesTheRequestAlone(t *testing.T) {
	for target, expect := range map[string]string{
		"/fill?ssp=a&ssp=%zz": "-?ssp=a&ssp=%zz",
		"/fill":               "-?",
		"/fill/a":             "no route",
	} {
		got, err := choose(t, false, target, "X-Adbuffer-Ssp: a", "X-Adbuffer-Ssp: b")
		testsupport.True(t, err == nil, "%s: %v", target, err)
		want(t, target, got, expect)
	}
}

// TestParameterIsCutFromEveryPosition cuts ssp from each position in a query. The other parameters,
// with unusual forms, must stay byte for byte.
func TestParameterIsCutFromEveryPosition(t *testing.T) {
	others := []string{"a=1", "", "b", "c=", "=d", "e=%20%zz", "f=\xff", "a=1", "ssps=x", "g=h=i"}
	for n := range len(others) + 1 {
		for at := range n + 1 {
			params := slices.Insert(slices.Clone(others[:n]), at, "ssp=openx")
			var scratch []byte
			name, without, err := cutControl([]byte(strings.Join(params, "&")), &scratch)
			what := fmt.Sprintf("%q", strings.Join(params, "&"))
			testsupport.True(t, err == nil && string(name) == "openx", "%s: name %q, %v", what, name, err)
			want(t, what, string(without), strings.Join(others[:n], "&"))
		}
	}
}

// A cut does not allocate once scratch is large enough.
func TestCutQueryStandsInTheScratchMemory(t *testing.T) {
	query := []byte("a=1&ssp=x&b=2")
	scratch := make([]byte, 0, 64)
	_, without, err := cutControl(query, &scratch)
	testsupport.True(t, err == nil && string(without) == "a=1&b=2" && &without[0] == &scratch[0], "%q, %v, scratch %q", without, err, scratch)
	testsupport.True(t, string(query) == "a=1&ssp=x&b=2", "the query became %q", query)
}
