package route

import "bytes"

// maxFoundParams is how many parameters of a query conditions look at: the first
// that have a name which a condition has.
const maxFoundParams = 16

// foundParams are the parameters of a query that conditions are about. They are
// found once for a request and not for each route: a client may send thousands of
// parameters, and there may be many routes.
type foundParams struct {
	all  [maxFoundParams]foundParam
	n    int
	done bool
}

// foundParam is where the value of a parameter stands in the raw query.
type foundParam struct{ name, value, end int32 }

// find looks for parameters with these names, once.
func (f *foundParams) find(query []byte, names []string) {
	if f.done {
		return
	}
	f.done = true
	for at := 0; at < len(query) && f.n < len(f.all); {
		if query[at] == '&' {
			at++ // an empty one
			continue
		}
		end := paramEnd(query, at)
		for i, name := range names {
			if value, ok := paramValue(query[at:end], name); ok {
				f.all[f.n] = foundParam{name: int32(i), value: int32(at + value), end: int32(end)}
				f.n++
				break
			}
		}
		at = end + 1
	}
}

// paramEnd returns where the parameter at query[at] ends.
func paramEnd(query []byte, at int) int {
	if i := bytes.IndexByte(query[at:], '&'); i >= 0 {
		return at + i
	}
	return len(query)
}

// paramValue returns where the value of a parameter starts, name=value or the name
// alone, whose value is empty. ok is false where it has another name. Nothing is
// decoded.
func paramValue(param []byte, name string) (at int, ok bool) {
	n := len(name)
	if len(param) < n || string(param[:n]) != name {
		return 0, false
	}
	if len(param) == n {
		return n, true
	}
	return n + 1, param[n] == '='
}
