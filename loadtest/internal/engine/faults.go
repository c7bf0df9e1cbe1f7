package engine

import (
	"fmt"
	"strings"
)

// Fault is one thing that is wrong with a scenario.
type Fault struct {
	Path string // load.phases[0].rate
	Rule string // what is wrong, with the value
	Line int    // of the file; 0 is unknown
}

func (f Fault) String() string {
	if f.Line == 0 {
		return f.Path + ": " + f.Rule
	}
	return fmt.Sprintf("%s: %s (line %d)", f.Path, f.Rule, f.Line)
}

// Faults are all that is wrong with a scenario.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// has says whether path, or something below or above it, is faulty already.
func (f Faults) has(path string) bool {
	for _, fault := range f {
		if fault.Path == path || strings.HasPrefix(fault.Path, path+".") || strings.HasPrefix(path, fault.Path+".") || strings.HasPrefix(fault.Path, path+"[") || strings.HasPrefix(path, fault.Path+"[") {
			return true
		}
	}
	return false
}
