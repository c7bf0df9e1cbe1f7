package route

import (
	"bytes"
	"slices"
)

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

// foundParam is a parameter: the index of its name, and its raw value.
type foundParam struct {
	name  int
	value []byte
}

// find looks for parameters with these names, once. Nothing is decoded.
func (f *foundParams) find(query []byte, names []string) {
	if f.done {
		return
	}
	f.done = true
	for param := range bytes.SplitSeq(query, []byte{'&'}) {
		name, value, _ := bytes.Cut(param, []byte{'='})
		i := slices.IndexFunc(names, func(n string) bool { return n == string(name) })
		if i < 0 || len(param) == 0 {
			continue
		}
		f.all[f.n] = foundParam{i, value}
		f.n++
		if f.n == len(f.all) {
			return
		}
	}
}
