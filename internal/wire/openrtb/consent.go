package openrtb

import "adbuffer/internal/wire/tcf"

// consentMembers are what conditions with TCF read: two places in which bodies say that the GDPR applies, and two for
// the consent string, of which the first is that of OpenRTB 2.6.
type consentMembers struct {
	applies [2]Test
	text    [2]Member
}

// readConsent makes Scan set Facts.Consent.
func (p *Paths) readConsent() {
	if p.consent != nil {
		return
	}
	one := Value{other: true, text: "1e0"}
	p.consent = &consentMembers{
		applies: [2]Test{
			p.Condition(&Condition{Path: MustParsePath("regs.gdpr"), Values: []Value{one}}),
			p.Condition(&Condition{Path: MustParsePath("regs.ext.gdpr"), Values: []Value{one}}),
		},
		text: [2]Member{p.Member(MustParsePath("user.consent")), p.Member(MustParsePath("user.ext.consent"))},
	}
}

// ReadsConsent reports whether Scan sets Facts.Consent.
func (p *Paths) ReadsConsent() bool { return p.consent != nil }

// read returns the consent in body, which Scan has found to be readable.
func (m *consentMembers) read(body []byte, f *Facts) *tcf.Consent {
	text := f.consentText(m.text[0], body)
	if len(text) == 0 {
		text = f.consentText(m.text[1], body)
	}
	return tcf.New(f.Holds(m.applies[0]) || f.Holds(m.applies[1]), text)
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

// DecideConsent returns the decision of the conditions with TCF among tests: that of the first one that does not hold, or
// else that of the last one. ok is false if there are none.
func (f *Facts) DecideConsent(tests []Test) (d tcf.Decision, ok bool) {
	for _, t := range tests {
		if t.tcf == nil {
			continue
		}
		d, ok = f.Consent.Decide(t.tcf), true
		if !d.Allows() {
			break
		}
	}
	return d, ok
}
