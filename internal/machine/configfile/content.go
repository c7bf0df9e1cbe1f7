package configfile

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
)

// maxBytes is the largest size of a configuration, and of a file that a configuration names.
const maxBytes = 1 << 20

// Content maps the name of each file to its state: a digest of what the file holds, or the reason why the file cannot
// be read. The state is "" if this process could not look, because it has no free file descriptor.
type Content map[string]string

// Look reads the files, and returns their states.
func Look(files []string) Content {
	c := make(Content, len(files))
	for _, name := range files {
		data, err := Read(name, maxBytes)
		switch {
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
			c[name] = ""
		case err != nil:
			c[name] = err.Error()
		default:
			c[name] = fmt.Sprintf("%x", sha256.Sum256(data))
		}
	}
	return c
}

// Update reads the files of c again. It returns their new states, and reports whether a state has changed. A file at
// which this process could not look keeps its old state.
func (c Content) Update() (now Content, changed bool) {
	now = Look(slices.Collect(maps.Keys(c)))
	for name, known := range c {
		now[name] = cmp.Or(now[name], known)
		changed = changed || now[name] != known
	}
	return now, changed
}
