package config

import (
	"crypto/subtle"
	"fmt"
	"io"
)

// Secret is a value that is never printed: not by fmt with any verb, not in YAML, not in JSON. The
// zero Secret is empty.
type Secret struct {
	// value is a pointer, because fmt calls no methods on a Secret in an unexported field of another
	// struct. fmt then prints the address and not the secret.
	value *string
}

// newSecret returns a Secret that hides value.
func newSecret(value string) Secret {
	if value == "" {
		return Secret{}
	}
	return Secret{&value}
}

// Reveal returns the secret. Do not log or print it.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// Empty reports whether there is no secret.
func (s Secret) Empty() bool { return s.value == nil }

// Equal compares two secrets, in constant time if their lengths are equal.
func (s Secret) Equal(other Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(other.Reveal())) == 1
}

// String returns Hidden, or nothing for an empty Secret.
func (s Secret) String() string {
	if s.Empty() {
		return ""
	}
	return Hidden
}

// Format implements fmt.Formatter: it writes String for every verb, %x and %#v too.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText is String. JSON and YAML use it.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
