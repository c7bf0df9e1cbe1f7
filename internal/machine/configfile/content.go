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

// maxBytes is the most that a configuration, or a file that it names, may hold.
const maxBytes = 1 << 20

// Content identifies the state of files: by name, a digest of the content or the reason why the file
// cannot be read. It is "" if this process could not look, since it may open no more files.
type Content map[string]string

// Look returns the content of the files now.
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

// Update looks at the files of c. It reports whether the content of one of them has changed, and
// returns the new content. A file at which this process could not look has not changed.
func (c Content) Update() (now Content, changed bool) {
	now = Look(slices.Collect(maps.Keys(c)))
	for name, known := range c {
		now[name] = cmp.Or(now[name], known)
		changed = changed || now[name] != known
	}
	return now, changed
}
