package scenario

import (
	"fmt"
	"slices"
	"strings"
)

// Fault is one mistake in a scenario.
type Fault struct {
	Path string // load.phases[0].rate
	Rule string // violated rule, with the value
	Line int    // line of the file; 0 if unknown
}

func (f Fault) String() string {
	if f.Line == 0 {
		return f.Path + ": " + f.Rule
	}
	return fmt.Sprintf("%s: %s (line %d)", f.Path, f.Rule, f.Line)
}

// Faults are all mistakes in a scenario.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// has reports whether there is a fault at path, above it or below it.
func (f Faults) has(path string) bool {
	within := func(a, b string) bool {
		rest, ok := strings.CutPrefix(a, b)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	}
	return slices.ContainsFunc(f, func(fault Fault) bool {
		return within(fault.Path, path) ||
			within(path, fault.Path)
	})
}
