package config

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Address is the address of a listener: "host:port", or "unix:/path". An empty host means every
// interface, and port 0 any free port.
type Address string

// Split returns the arguments of net.Listen: "tcp" and host:port, or "unix" and the path.
func (a Address) Split() (network, address string) {
	if path, ok := strings.CutPrefix(string(a), "unix:"); ok {
		return "unix", path
	}
	return "tcp", string(a)
}

// FileMode is the permission bits of a file, written as octal digits: "0660".
type FileMode fs.FileMode

// UnmarshalText reads three or four octal digits.
func (m *FileMode) UnmarshalText(text []byte) error {
	s := string(text)
	bits, err := strconv.ParseUint(s, 8, 32)
	if err != nil || len(s) < 3 || len(s) > 4 || bits > 0o777 {
		return fmt.Errorf(`must be octal permissions in quotes, for example "0660"`)
	}
	*m = FileMode(bits)
	return nil
}

// MarshalText writes four octal digits.
func (m FileMode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// String is four octal digits.
func (m FileMode) String() string { return fmt.Sprintf("%04o", uint32(m)) }
