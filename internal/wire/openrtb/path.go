package openrtb

import (
	"errors"
	"fmt"
	"strings"
)

// Path names members of a document: member names from the root on. The name "*" is any element of an
// array.
type Path []string

// AnyElement is the name in a Path that means any element of an array.
const AnyElement = "*"

// Errors of ParsePath.
var (
	errPathName = errors.New("must be member names joined by dots, for example device.geo.country")
	errPathEnd  = errors.New("must not begin or end with *: * is any element of the array before it, and a member follows")
	errPathDeep = fmt.Errorf("must have at most %d names: a deeper body is not read", MaxDepth)
)

// ParsePath returns the path for names that are joined by dots. It fails if a name is empty, if the
// first or last name is "*", and if there are more than MaxDepth names.
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

// MustParsePath is ParsePath for a path in the program's text. It panics on an error.
func MustParsePath(text string) Path {
	p, err := ParsePath(text)
	if err != nil {
		panic("BUG: the path " + text + ": " + err.Error())
	}
	return p
}

// String returns the names joined by dots.
func (p Path) String() string { return strings.Join(p, ".") }
