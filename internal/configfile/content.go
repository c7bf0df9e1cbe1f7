package configfile

import (
	"crypto/sha256"
	"fmt"
)

// maxBytes is the most that a configuration, or a file that it names, may hold.
const maxBytes = 1 << 20

// Content identifies the state of files: by name, a digest of the content or the reason
// why the file cannot be read.
type Content map[string]string

// Look returns the content of the files now.
func Look(files []string) Content {
	c := make(Content, len(files))
	for _, name := range files {
		data, err := Read(name, maxBytes)
		if err != nil {
			c[name] = err.Error()
			continue
		}
		c[name] = fmt.Sprintf("%x", sha256.Sum256(data))
	}
	return c
}
