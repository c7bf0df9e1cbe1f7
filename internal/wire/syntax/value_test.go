package syntax

import (
	"bytes"
	"slices"
	"testing"

	"adbuffer/internal/test/testsupport"
)

func TestControlAtFindsEachByteAtEachPlace(t *testing.T) {
	for c := range 256 {
		control := c < 0x20 && c != '\t' || c == 0x7f
		for length := range 20 {
			for at := range length {
				// With these neighbours a carry could cause a false hit, or hide a hit.
				for _, filler := range []byte{'a', ' ', '~', '\t', 0x80, 0xff, 0xa0} {
					b := bytes.Repeat([]byte{filler}, length)
					b[at] = byte(c)
					want := length
					if control {
						want = at
					}
					testsupport.MustEqual(t, ControlAt(b), want, "ControlAt(%[2]q) = %[1]d", b)
				}
			}
		}
	}
}

func TestEachByteIsJudgedAlikeAtEachPlace(t *testing.T) {
	for _, size := range []int{0, 1, 7, 8, 9, 16, 23, 100} {
		v := bytes.Repeat([]byte{'a'}, size)
		testsupport.True(t, IsValue(v) && IsVisible(v), "%d letters are no value", size)
		for i := range v {
			for c := range 256 {
				v[i] = byte(c)
				if got, want := IsValue(v), c >= ' ' && c != 0x7f || c == '\t'; got != want {
					t.Fatalf("byte %#x at %d of %d: value %t, want %t", c, i, size, got, want)
				}
				got, want := IsVisible(v), c > ' ' && c != 0x7f
				testsupport.MustTrue(t, got == want, "byte %#x at %d of %d: visible %t, want %t", c, i, size, got, want)
			}
			v[i] = 'a'
		}
	}
}

// Only the case of ASCII letters is ignored.
func TestEqualFoldFoldsLettersOnly(t *testing.T) {
	testsupport.True(t, EqualFold([]byte("A-Z@[`{"), "a-z@[`{"), "the same bytes differ")
	for _, s := range []string{"@", "[", "`", "{", "\x1b"} {
		for _, other := range []string{"@", "[", "`", "{", "\x1b"} {
			got := EqualFold([]byte(s), other)
			testsupport.True(t, got == (s == other), "%q and %q: %v", s, other, got)
		}
	}
}

func TestConnectionSpecificNames(t *testing.T) {
	for name, want := range map[string]bool{
		"Connection": true, "keep-alive": true, "Proxy-Connection": true, "transfer-encoding": true, "UPGRADE": true,
		"TE": false, "Trailer": false, "Host": false, "connection2": false, "connectiom": false, "": false,
	} {
		testsupport.Equal(t, IsConnectionSpecific([]byte(name)), want, "IsConnectionSpecific(%[2]q) = %[1]v", name)
	}
}

func TestFieldsReadsBlocks(t *testing.T) {
	block := []byte("A: 1\r\nB: \r\nlong-Name:  two  words \r\n")
	var got []string
	for name, value := range Fields(block) {
		got = append(got, string(name)+"="+string(value))
	}
	want := []string{"A=1", "B=", "long-Name=two  words"}
	testsupport.True(t, slices.Equal(got, want), "fields %q, want %q", got, want)

	if v, ok := FindField(block, "LONG-name"); !ok || string(v) != "two  words" {
		t.Errorf("FindField(LONG-name) = %q, %v", v, ok)
	}
	v, ok := FindField(block, "long-nam")
	testsupport.True(t, !ok, "FindField(long-nam) = %q", v)
	for name := range Fields(block) {
		testsupport.True(t, bytes.Equal(name, []byte("A")), "continued after break, to %q", name)
		break
	}
	for _, malformed := range []string{"", "A", "A: 1", ": 1\r\n", "A: 1\r", "A: 1\rB: 2\r\n", "A: 1\nB: 2\r\n", "A: 1\n\r\n"} {
		name, value, rest := CutField([]byte(malformed))
		testsupport.True(t, name == nil && value == nil && rest == nil, "CutField(%q) = %q, %q, %q", malformed, name, value, rest)
	}
}

func TestNothingAllocates(t *testing.T) {
	v, list, block := []byte("1234"), []byte("keep-alive, Close"), []byte("A: 1\r\nB: 2\r\n")
	dst := make([]byte, 0, 64)
	n := testing.AllocsPerRun(100, func() {
		ParseNumber(v, MaxNumber)
		IsToken(v)
		IsTrimmedValue(v)
		HasToken(list, "close")
		FindField(block, "b")
		AppendField(dst, v, v)
	})
	testsupport.True(t, n == 0, "%v allocations", n)
}
