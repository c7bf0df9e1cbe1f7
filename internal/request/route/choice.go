package route

import (
	"bytes"
	"errors"

	"adbuffer/internal/wire/header"
)

// Errors of a client's choice.
var (
	ErrChoiceConflict = errors.New("the path, the parameter ssp and the field X-Adbuffer-Ssp name different SSPs")
	ErrChoiceRepeated = errors.New("ssp is given more than once")
	ErrChoiceEncoded  = errors.New("the parameter ssp must not be percent-encoded")
	ErrUnknownSSP     = errors.New("the route has no SSP of that name; see routes[].ssps")
)

// control is the query parameter with which a client chooses an SSP.
const control = "ssp"

// Choose returns the target that the client chose. It returns nil if the client chose no target or
// may not choose one. It also returns the query, without the control parameter if that chose the target.
// fromPath is the name from Find. The query's other bytes stay unchanged, in order. If the
// parameter was cut from the middle, the result is in *scratch, which grows as needed.
func (rt *Route) Choose(f *header.RequestFields, fromPath []byte, scratch *[]byte) (t *Target, query []byte, err error) {
	if !rt.ClientChoice {
		return nil, f.Query, nil
	}
	fromQuery, query, err := cutControl(f.Query, scratch)
	if err != nil {
		return nil, nil, err
	}
	fromHeader, n := f.SSP()
	if n > 1 {
		return nil, nil, ErrChoiceRepeated
	}
	chosen := fromPath
	for _, other := range [2][]byte{fromQuery, fromHeader} {
		switch {
		case other == nil:
		case chosen == nil:
			chosen = other
		case !bytes.Equal(chosen, other):
			return nil, nil, ErrChoiceConflict
		}
	}
	if chosen == nil {
		return nil, f.Query, nil
	}
	t = rt.target(chosen)
	if t == nil {
		return nil, nil, ErrUnknownSSP
	}
	return t, query, nil
}

// cutControl returns the value of the parameter ssp, or nil, and the query without the parameter.
func cutControl(query []byte, scratch *[]byte) (name, without []byte, err error) {
	at, start, end := 0, -1, 0
	for param := range bytes.SplitSeq(query, []byte{'&'}) {
		next := at + len(param)
		if key, value, _ := bytes.Cut(param, []byte{'='}); string(key) == control {
			if start >= 0 {
				return nil, nil, ErrChoiceRepeated
			}
			start, end, name = at, next, query[next-len(value):next]
			if bytes.IndexByte(name, '%') >= 0 {
				return nil, nil, ErrChoiceEncoded
			}
		}
		at = next + 1
	}
	switch {
	case start < 0:
		return nil, query, nil
	case end < len(query): // cut the & after it too
		end++
	case start > 0: // the last parameter: cut the & before it
		start--
	}
	if start == 0 {
		return name, query[end:], nil
	}
	if end == len(query) {
		return name, query[:start], nil
	}
	*scratch = append(append((*scratch)[:0], query[:start]...), query[end:]...)
	return name, *scratch, nil
}
