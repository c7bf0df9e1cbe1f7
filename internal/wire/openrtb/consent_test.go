package openrtb

import (
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/tcf"
)

// granting is a consent string of @iabtcf/core: vendor 76, with consent for purposes 1, 2 and 7, and legitimate interest
// for 7 and 10.
const granting = "CQdjfYAQdjfYAAKABAENAwFgAMIAAAJAAAYgAmQAQAmACZABACYAAAAA"

func TestConsentIsReadFromTheBody(t *testing.T) {
	t.Parallel()
	needs := &tcf.Requirement{Vendor: 76, Purposes: []int{1, 2, 7}, LegitimateInterests: []int{10}}
	escaped := `"\u0043` + granting[1:] + `"`
	for _, tt := range []struct {
		body string
		want tcf.Decision
	}{
		{`{}`, tcf.NotApplicable},
		{`{"regs":{"gdpr":0},"user":{"consent":"?"}}`, tcf.NotApplicable},
		{`{"regs":{"gdpr":"1","ext":{"gdpr":true}}}`, tcf.NotApplicable},
		{`{"regs":{"gdpr":null}}`, tcf.NotApplicable},
		{`{"regs":[{"gdpr":1}]}`, tcf.NotApplicable},
		{`{"regs":{"gdpr":1},"user":{"consent":"` + granting + `"}}`, tcf.Allowed},
		{`{"user":{"ext":{"consent":"` + granting + `.YAAA"}},"regs":{"ext":{"gdpr":1.0}}}`, tcf.Allowed},
		{`{"regs":{"gdpr":0,"ext":{"gdpr":10e-1}},"user":{"consent":` + escaped + `}}`, tcf.Allowed},
		{`{"regs":{"gdpr":1},"user":{"consent":"","ext":{"consent":` + escaped + `}}}`, tcf.Allowed},
		{`{"regs":{"gdpr":1},"user":{"consent":null,"ext":{"consent":"` + granting + `"}}}`, tcf.Allowed},
		{`{"regs":{"gdpr":1},"user":{"consent":"?","ext":{"consent":"` + granting + `"}}}`, tcf.Unreadable},
		{`{"regs":{"gdpr":1},"user":{"consent":1}}`, tcf.Unreadable},
		{`{"regs":{"gdpr":1},"user":{"consent":["` + granting + `"]}}`, tcf.Unreadable},
		{`{"regs":{"gdpr":1},"user":{"consent":"` + granting[:40] + `"}}`, tcf.Unreadable},
		{`{"regs":{"gdpr":1}}`, tcf.NoConsent},
		{`{"regs":{"gdpr":1},"user":{"consent":null,"ext":{}}}`, tcf.NoConsent},
		{`{"openrtb":{"request":{"context":{"regs":{"gdpr":1},"user":{"consent":"` + granting + `"}}}}}`, tcf.Allowed},
		{`{"openrtb":{"request":{"context":{"regs":{"gdpr":1}}}},"user":{"consent":"` + granting + `"}}`, tcf.Allowed},
		{`{"openrtb":{"request":{"context":{"regs":{"ext":{"gdpr":1}},"user":{"ext":{"consent":"` + granting[:40] + `"}}}}}}`, tcf.Unreadable},
		{`{"openrtb":{"request":{"context":{"regs":{"gdpr":1},"user":{}}}}}`, tcf.NoConsent},
		{`{"openrtb":{"request":{"context":{"regs":{"gdpr":0}}}}}`, tcf.NotApplicable},
		{`{"regs":{"ext":{"gdpr":1}},"user":{"consent":"CQdjfYAQdjfYAAKABAENAwFgAMIAAAJAAAYgAAAAAAAA"}}`, tcf.NoConsent},

		// Not even if the GDPR does not apply, since SSPs may read the body in another way.
		{`{"regs":{"gdpr":0,"gdpr":1}}`, tcf.Unreadable},
		{`{"user":{"consent":"x","consent":"y"}}`, tcf.Unreadable},
		{`{"regs":{"gdpr":0}`, tcf.Unreadable},
		{``, tcf.Unreadable},
	} {
		var p Paths
		test, not := p.Condition(&Condition{TCF: needs}), p.Condition(&Condition{TCF: needs, Not: true})
		f := AcquireFacts()
		p.Scan([]byte(tt.body), f)
		_, d, ok := f.DecideConsent([]Test{test})
		testsupport.True(t, ok && d == tt.want, "%s: %v, want %v", tt.body, d, tt.want)
		testsupport.Equal(t, f.HoldAll([]Test{test}), tt.want.Allows(), "%[3]s: the condition holds: %[1]v", tt.body)
		testsupport.Equal(t, f.HoldAll([]Test{not}), !tt.want.Allows(), "%[3]s: its negation holds: %[1]v", tt.body)
		f.Release()
	}
}

// The first condition with TCF that does not hold decides.
func TestTheDecisionOfSeveralConditions(t *testing.T) {
	t.Parallel()
	var (
		p Paths
		f Facts
	)
	member := p.Condition(&Condition{Path: Path{"id"}})
	p.Scan([]byte(`{}`), &f)
	hold, _, ok := f.DecideConsent([]Test{member})
	testsupport.True(t, !hold && !ok && !p.ReadsConsent(), "a condition on a member reads the consent")
	denied := p.Condition(&Condition{TCF: &tcf.Requirement{Vendor: 76}, Not: true})
	granted, lacking := p.Condition(&Condition{TCF: &tcf.Requirement{Vendor: 76}}), p.Condition(&Condition{TCF: &tcf.Requirement{Vendor: 77}})
	testsupport.True(t, p.ReadsConsent(), "conditions with TCF do not read the consent")
	p.Scan([]byte(`{"regs":{"gdpr":1},"user":{"consent":"`+granting+`"}}`), &f)
	for _, tt := range []struct {
		tests []Test
		want  tcf.Decision
		holds bool
	}{
		{[]Test{granted}, tcf.Allowed, true}, {[]Test{granted, lacking}, tcf.NoConsent, false}, {[]Test{lacking, granted}, tcf.NoConsent, false},
		{[]Test{member, granted}, tcf.Allowed, false}, {[]Test{denied, lacking}, tcf.Allowed, false},
	} {
		hold, d, ok := f.DecideConsent(tt.tests)
		testsupport.True(t, ok && d == tt.want && hold == tt.holds && f.HoldAll(tt.tests) == tt.holds, "%v: %v, the conditions hold: %v", tt.tests, d, hold)
	}
}

// The conditions of an edit are decided once for a body, not once for each member that they are about: after plan, another
// consent changes nothing.
func TestAnEditDecidesOnce(t *testing.T) {
	t.Parallel()
	when := []Condition{{TCF: &tcf.Requirement{Vendor: 76}}}
	path := MustParsePath
	edit := NewEdit([]Removal{{Path: path("imp.*.x"), When: when}, {Path: path("a"), When: when}, {Path: path("imp.*.y"), When: []Condition{{TCF: when[0].TCF, Not: true}}}},
		Set{Path: path("a.b"), How: Append, Value: []byte("1"), When: when}, Set{Path: path("c"), How: Append, Value: []byte("2"), When: when})
	body := []byte(`{"imp":[{"x":1,"y":1},{"x":2},{"x":3}],"a":{"b":[0]},"c":[0],"regs":{"gdpr":1}}`)
	f := new(Facts)
	f.Consent = tcf.New(true, []byte(granting))
	edit.paths.Scan(body, f)
	testsupport.MustTrue(t, edit.plan(&edit.compiled, body, f), "the body does not fit")
	f.Consent = tcf.OfUnreadable()
	edited, _ := edit.change(nil, body, f)
	testsupport.Equal(t, string(edited), `{"imp":[{"y":1},{},{}],"c":[0,2],"regs":{"gdpr":1},"a":{"b":[1]}}`, "it is %s")
}

// An edit decides by the consent that an earlier scan of the request has decoded, and reads the body's own if there is none.
func TestEditsShareTheDecodedConsent(t *testing.T) {
	t.Parallel()
	edit := NewEdit([]Removal{{Path: MustParsePath("x"), When: []Condition{{TCF: &tcf.Requirement{Vendor: 76}}}}})
	const rest = `"regs":{"gdpr":1},"user":{"consent":"` + granting + `"}}`
	for _, tt := range []struct {
		consent *tcf.Consent
		want    string // "" = the body stays unchanged
	}{{nil, `{` + rest}, {tcf.New(true, []byte(granting)), `{` + rest}, {tcf.New(true, nil), ""}} {
		f := AcquireFacts()
		f.Consent = tt.consent
		edited, changed := edit.Apply(nil, []byte(`{"x":1,`+rest), f)
		testsupport.True(t, changed == (tt.want != "") && string(edited) == tt.want, "with the consent %v, the body becomes %s, want %s", tt.consent, edited, tt.want)
		testsupport.True(t, tt.consent == nil || f.Consent == tt.consent, "the edit decoded the string again")
		f.Release()
	}
	f := AcquireFacts()
	testsupport.True(t, f.Consent == nil, "a request begins with the consent of another")
	f.Release()
	var p Paths
	edit.NewCheck(&p)
	testsupport.True(t, p.ReadsConsent(), "the paths of the edit lack those of its conditions")
}
