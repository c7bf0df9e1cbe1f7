package route

import (
	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/syntax"
)

// CORS says which pages' scripts may read a route's responses. Package config says what the tags mean.
type CORS struct {
	Origins     []string `yaml:"origins" form:"origin" unique:"."` // of the pages, exactly as browsers send them; "*" alone = all
	Credentials bool     `yaml:"credentials"`                      // scripts may send cookies; not with "*" and "null"
}

// AllowsAll reports whether scripts of every page may read the responses.
func (c *CORS) AllowsAll() bool { return len(c.Origins) == 1 && c.Origins[0] == "*" }

// Allows reports whether scripts of pages with this origin may read the responses.
func (c *CORS) Allows(origin []byte) bool {
	for _, o := range c.Origins {
		if o == "*" || string(origin) == o {
			return true
		}
	}
	return false
}

// FindCORS returns the route that decides about a preflight, or nil: of the routes with CORS that match the target,
// the first that allows the origin, or else the first. Conditions on the header and the body are ignored, since a
// preflight has neither those fields nor a body.
func (t *Table) FindCORS(f *header.RequestFields) (first *Route) {
	if hasDotDot(f.Path) {
		return nil
	}
	origin, _ := f.Lookup("Origin")
	var params foundParams
	for _, rt := range t.Routes {
		if len(rt.CORS.Origins) == 0 {
			continue
		}
		if _, ok := rt.matchesURL(f, &params, t.params); !ok {
			continue
		}
		if rt.CORS.Allows(origin) {
			return rt
		}
		if first == nil {
			first = rt
		}
	}
	return first
}

// corsLines returns those of the lines that say which scripts may read a response, in the memory of lines.
func corsLines(lines []byte) []byte {
	const prefix = "Access-Control-"
	return syntax.KeepFields(lines, func(name []byte) bool {
		return syntax.EqualFold(name, "Vary") || len(name) >= len(prefix) && syntax.EqualFold(name[:len(prefix)], prefix)
	})
}
