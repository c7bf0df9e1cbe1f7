package httpheader

import (
	"bytes"
	"strings"
	"testing"
)

func TestIdentifyKnowsEachNameInAnySpellingAndNoOther(t *testing.T) {
	for _, k := range known {
		for _, name := range []string{k.name, strings.ToUpper(k.name), strings.ReplaceAll(k.name, "-", "_")} {
			if got := identify([]byte(name)); got != k.id {
				t.Errorf("%s: %v, want %v", name, got, k.id)
			}
		}
		for i := range k.name {
			name := []byte(k.name)
			name[i] = '~'
			switch got := identify(name); {
			case got == unknownName:
			case bytes.HasPrefix(name, []byte("x-forwarded-")), bytes.HasPrefix(name, []byte("x-device-")),
				bytes.HasPrefix(name, []byte("x-adbuffer-")), bytes.HasPrefix(name, []byte("proxy-")):
			default:
				t.Errorf("%s is identified as %v", name, got)
			}
		}
	}
}
