package testsupport

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// Zstd returns text with the content coding zstd.
func Zstd(text string) string {
	e, err := zstd.NewWriter(nil)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	defer e.Close()
	return string(e.EncodeAll([]byte(text), nil))
}

// ZstdProgram runs the program zstd with text as its input, and returns its output. It is a second opinion about the coding.
func ZstdProgram(t testing.TB, text string, args ...string) string {
	t.Helper()
	c := exec.Command(Needs(t, "zstd", "zstd"), append(args, "-q", "-c")...)
	c.Stdin = strings.NewReader(text)
	out, err := c.Output()
	NoError(t, err)
	return string(out)
}
