package testsupport

import (
	"bytes"
	"compress/gzip"
	"io"
)

// Gzip returns the pieces of a text with the content coding gzip of the standard library, flushed between them as by a
// server that sends a response while it produces it.
func Gzip(pieces ...string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	for i, piece := range pieces {
		if i > 0 {
			w.Flush()
		}
		io.WriteString(w, piece)
	}
	w.Close()
	return b.String()
}
