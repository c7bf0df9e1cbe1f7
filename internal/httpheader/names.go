package httpheader

import "slices"

// names is a small set of field names with a fast test for names outside the set.
type names struct {
	list    []string // in lower case
	lengths uint64   // bit n: a name of n bytes is in list; bit 63: one of 63 or more
}

func (s *names) add(name string) {
	s.list = append(s.list, name)
	s.lengths |= 1 << min(len(name), 63)
}

// has reports whether name, read through fold, is in the set.
func (s *names) has(name []byte, fold *[256]byte) bool {
	if s.lengths>>min(len(name), 63)&1 == 0 {
		return false
	}
	return slices.ContainsFunc(s.list, func(want string) bool { return is(name, want, fold) })
}

// foldName returns name in lower case and with '-' for '_'. name is a token.
func foldName(name string) string {
	b := []byte(name)
	for i, c := range b {
		b[i] = folded[c]
	}
	return string(b)
}
