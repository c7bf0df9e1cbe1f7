package openrtb

import (
	"slices"

	"adbuffer/internal/wire/tcf"
)

// consentMembers are what conditions with TCF read: where bodies say that the GDPR applies, and where they have the consent
// string. The first string that is not empty counts.
type consentMembers struct {
	applies []Test
	texts   []Member
}

// readConsent makes Scan set Facts.Consent.
func (p *Paths) readConsent() {
	if p.consent != nil {
		return
	}
	p.consent = new(consentMembers)
	for _, request := range []string{"", "openrtb.request.context."} { // of OpenRTB 2 and 3
		for _, ext := range []string{"", "ext."} {
			applies := Condition{Path: MustParsePath(request + "regs." + ext + "gdpr"), Values: []Value{{other: true, text: "1e0"}}}
			p.consent.applies = append(p.consent.applies, p.Condition(&applies))
			p.consent.texts = append(p.consent.texts, p.Member(MustParsePath(request+"user."+ext+"consent")))
		}
	}
}

// ReadsConsent reports whether Scan sets Facts.Consent.
func (p *Paths) ReadsConsent() bool { return p.consent != nil }

// setConsent sets f.Consent, unless it is set or no condition needs it. f.Reason says whether body is readable.
func (p *Paths) setConsent(body []byte, f *Facts) {
	switch {
	case p.consent == nil || f.Consent != nil:
	case f.Reason != Readable:
		f.Consent = tcf.OfUnreadable()
	default:
		f.Consent = p.consent.read(body, f)
	}
}

// read returns the consent in body, which Scan has found to be readable.
func (m *consentMembers) read(body []byte, f *Facts) *tcf.Consent {
	var text []byte
	for _, member := range m.texts {
		if text = f.consentText(member, body); len(text) > 0 {
			break
		}
	}
	return tcf.New(slices.ContainsFunc(m.applies, f.Holds), text)
}

// consentText returns the content of a string, empty if there is none. Any other value but null is returned as it is,
// which is no consent string. The result is valid until the next call.
func (f *Facts) consentText(m Member, body []byte) []byte {
	value := f.Value(m, body)
	switch {
	case len(value) == 0 || string(value) == "null":
		return nil
	case value[0] == '"':
		return f.content(value)
	}
	return value
}

// DecideConsent is HoldAll, and also returns the decision of the conditions with TCF among tests: that of the first one that
// does not hold, or else that of the last one. decided is false if there are none.
func (f *Facts) DecideConsent(tests []Test) (hold bool, d tcf.Decision, decided bool) {
	hold = true
	for _, t := range tests {
		if t.tcf == nil {
			hold = hold && f.Holds(t)
			continue
		}
		d, decided = f.Consent.Decide(t.tcf), true
		if d.Allows() != t.want {
			return false, d, true
		}
	}
	return hold, d, decided
}
