package configwatch

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
)

// maxBytes is how much of a file is looked at: as much as a configuration, or a
// file that it names, may have.
const maxBytes = 1<<20 + 1

// Content tells one state of files from another: a digest of each, or why it
// cannot be read.
type Content map[string]string

// Read looks at files. What is no regular file is not opened, since a pipe could
// keep the reader waiting for good.
func Read(files []string) Content {
	c := make(Content, len(files))
	for _, f := range files {
		c[f] = digest(f)
	}
	return c
}

func digest(name string) string {
	info, err := os.Stat(name)
	if err != nil {
		return err.Error()
	}
	if !info.Mode().IsRegular() {
		return "not a regular file"
	}
	file, err := os.Open(name)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, io.LimitReader(file, maxBytes)); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%x", hash.Sum(nil))
}
