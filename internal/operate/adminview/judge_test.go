package adminview

import (
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"adbuffer/internal/test/testsupport"
)

// The bodies are no JSON, so that only their decoding costs time.
func TestCompressedBodiesOfUpTo64MiBAreJudged(t *testing.T) {
	encoder, err := zstd.NewWriter(nil)
	testsupport.NoError(t, err)
	atLimit := encoder.EncodeAll(make([]byte, 67_108_864), nil)
	oneMore := slices.Concat(atLimit, encoder.EncodeAll([]byte{0}, nil))
	for want, body := range map[string][]byte{"a body that cannot be judged: invalid character": atLimit, "a compressed body that is too large to be decoded": oneMore} {
		_, err := documentOf(body, []string{"zstd"})
		testsupport.True(t, err != nil && strings.HasPrefix(err.Error(), want), "%v, want %s", err, want)
	}
}
