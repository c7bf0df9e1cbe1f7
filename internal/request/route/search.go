package route

import (
	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/openrtb"
	"adbuffer/internal/wire/syntax"
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

	facts    openrtb.Facts
	examined bool
	next     int // the index of the next route
}

// Reset makes s ready for another request.
func (s *Search) Reset() {
	s.NeedsBody, s.Explaining, s.HeldBack, s.examined, s.next = false, false, 0, false, 0
}

// Facts returns what Examine found, nil before it. They are valid until Reset.
func (s *Search) Facts() *openrtb.Facts {
	if !s.examined {
		return nil
	}
	return &s.facts
}

// Examine examines a request's body, which has arrived completely, for all conditions of the table.
func (t *Table) Examine(f *header.RequestFields, body []byte, s *Search) {
	s.examined = true
	if why := UnreadableHeader(f); why != openrtb.Readable {
		t.paths.Refuse(why, &s.facts)
		return
	}
	t.paths.Scan(body, &s.facts)
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
