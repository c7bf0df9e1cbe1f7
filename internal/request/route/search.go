package route

import (
	"bytes"
	"net/url"

	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/openrtb"
	"adbuffer/internal/wire/syntax"
	"adbuffer/internal/wire/tcf"
)

// Search is the state of the search for a request's route. The zero value is ready. The search stops at a
// route with conditions on the body, and continues after Examine.
type Search struct {
	// NeedsBody says that the search has stopped until Examine is called.
	NeedsBody bool
	// Explaining switches off what chance and load decide: HeldBack decides about holdback, and overload refuses no request.
	Explaining bool
	// HeldBack is, while Explaining, how many of the next matching routes with a holdback pass the request to a later
	// route.
	HeldBack int

	facts     openrtb.Facts
	examined  bool
	fromQuery bool // facts.Consent is that of the query, since there is no body
	next      int  // the index of the next route
}

// Reset makes s ready for another request.
func (s *Search) Reset() {
	s.NeedsBody, s.Explaining, s.HeldBack, s.examined, s.fromQuery, s.next, s.facts.Consent = false, false, 0, false, false, 0, nil
}

// Facts returns what Examine found, nil before it. They are valid until Reset.
func (s *Search) Facts() *openrtb.Facts {
	if !s.examined {
		return nil
	}
	return &s.facts
}

// Unreadable returns why Examine could not read the body of a request for rt, which is nil if no route was found. A request
// without a body is not unreadable for a route with conditions with TCF, which examine its query.
func (s *Search) Unreadable(rt *Route) openrtb.Reason {
	if !s.examined || s.fromQuery && rt != nil && rt.asksConsent {
		return openrtb.Readable
	}
	return s.facts.Reason
}

// Examine examines a request's body, which has arrived completely, for all conditions of the table.
func (t *Table) Examine(f *header.RequestFields, body []byte, s *Search) {
	s.examined, s.fromQuery = true, len(body) == 0 && t.paths.ReadsConsent()
	if s.fromQuery {
		s.facts.Consent = consentOfQuery(f.Query)
	}
	if why := UnreadableHeader(f); why != openrtb.Readable {
		t.paths.Refuse(why, &s.facts)
	} else {
		t.paths.Scan(body, &s.facts)
	}
}

// consentOfQuery returns what the parameters gdpr and gdpr_consent say of consent. If there are two different consent
// strings, none can be read, since SSPs may use either.
func consentOfQuery(query []byte) *tcf.Consent {
	applies := false
	var text []byte
	for param := range bytes.SplitSeq(query, []byte{'&'}) {
		name, value, _ := bytes.Cut(param, []byte{'='})
		value = unescaped(value)
		switch string(unescaped(name)) {
		case "gdpr":
			applies = applies || string(value) == "1"
		case "gdpr_consent":
			if text != nil && !bytes.Equal(text, value) {
				value = []byte("?")
			}
			text = value
		}
	}
	return tcf.New(applies, text)
}

// unescaped returns text without percent-encoding, or text itself if its encoding is malformed.
func unescaped(text []byte) []byte {
	if !bytes.ContainsAny(text, "%+") {
		return text
	}
	decoded, err := url.QueryUnescape(string(text))
	if err != nil {
		return text
	}
	return []byte(decoded)
}

// Passed returns the routes before found (nil: all routes) that match but for their conditions on the body.
func (t *Table) Passed(f *header.RequestFields, found *Route) (all []*Route) {
	var params foundParams
	for _, rt := range t.Routes {
		if rt == found {
			break
		}
		if _, ok := rt.matches(f, &params, t.params); ok && len(rt.conditions) > 0 {
			all = append(all, rt)
		}
	}
	return all
}

// UnreadableHeader returns why a body with these header fields is unreadable, whatever its bytes are.
func UnreadableHeader(f *header.RequestFields) openrtb.Reason {
	coding := f.ContentEncoding()
	switch {
	case coding != nil && !syntax.EqualFold(coding, "identity"):
		return openrtb.Encoding
	case openrtb.IsProtobuf(f.ContentType()):
		return openrtb.MediaType
	}
	return openrtb.Readable
}
