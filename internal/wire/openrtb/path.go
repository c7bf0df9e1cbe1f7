package openrtb

import (
	"errors"
	"fmt"
	"strings"
)

// Path is the path of a member of a document: the names of members, starting at the root. The name "*"
// matches any element of an array. For Paths.Member, a whole number is also the index of an element.
type Path []string

// AnyElement is the name in a Path that matches any element of an array.
const AnyElement = "*"

// Errors of ParsePath.
var (
	errPathName = errors.New("must be member names joined by dots, for example device.geo.country")
	errPathEnd  = errors.New("must not begin or end with *, which stands between an array and a member of its elements, for example imp.*.tagid")
	errPathDeep = fmt.Errorf("must have at most %d names, since more deeply nested bodies are not read", MaxDepth)
)

// ParsePath parses a path of names joined by dots. It fails if a name is empty, if the first or last name
// is "*", and if there are more than MaxDepth names.
func ParsePath(text string) (Path, error) {
	p := Path(strings.Split(text, "."))
	for _, name := range p {
		if name == "" {
			return nil, errPathName
		}
	}
	if p[0] == AnyElement || p[len(p)-1] == AnyElement {
		return nil, errPathEnd
	}
	if len(p) > MaxDepth {
		return nil, errPathDeep
	}
	return p, nil
}

// MustParsePath is ParsePath for a path that is known to be valid. It panics on an error.
func MustParsePath(text string) Path {
	p, err := ParsePath(text)
	if err != nil {
		panic("BUG: the path " + text + ": " + err.Error())
	}
	return p
}

// String returns the names joined by dots.
func (p Path) String() string { return strings.Join(p, ".") }
