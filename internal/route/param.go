package route

import "bytes"

// maxFoundParams is the number of parameters of a query that are compared with conditions: the
// first ones whose name occurs in a condition.
const maxFoundParams = 16

// foundParams are the parameters of a query whose names occur in conditions. They are found once
// per request and not per route, since a client may send thousands of parameters, and there may be
// many routes.
type foundParams struct {
	all  [maxFoundParams]foundParam
	n    int
	done bool
}

// foundParam is the position of a parameter's value in the raw query.
type foundParam struct{ name, value, end int32 }

// find looks for parameters with these names, once.
func (f *foundParams) find(query []byte, names []string) {
	if f.done {
		return
	}
	f.done = true
	for at := 0; at < len(query) && f.n < len(f.all); {
		if query[at] == '&' {
			at++ // an empty parameter
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

// paramEnd returns the end of the parameter at query[at].
func paramEnd(query []byte, at int) int {
	if i := bytes.IndexByte(query[at:], '&'); i >= 0 {
		return at + i
	}
	return len(query)
}

// paramValue returns the start of a parameter's value: name=value, or the name alone with an empty
// value. ok is false if the parameter has another name. Nothing is decoded.
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
