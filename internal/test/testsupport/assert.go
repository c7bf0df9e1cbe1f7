package testsupport

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
)

// These functions say in one line what must hold. The test goes on after an error, except after those
// whose name begins with Must, and NoError. A format has its verbs for got first, and then for args:
// Equal(t, dials, 2, "%d dials") says "3 dials, want 2".

// Equal checks that got is want.
func Equal[T comparable](t testing.TB, got, want T, format string, args ...any) {
	if got != want {
		t.Helper()
		t.Error(unequal(got, want, format, args))
	}
}

// MustEqual is Equal, and ends the test.
func MustEqual[T comparable](t testing.TB, got, want T, format string, args ...any) {
	if got != want {
		t.Helper()
		t.Fatal(unequal(got, want, format, args))
	}
}

func unequal(got, want any, format string, args []any) string {
	verb := ", want %v"
	if _, text := want.(string); text {
		verb = ", want %q"
	}
	return fmt.Sprintf(format, append([]any{got}, args...)...) + fmt.Sprintf(verb, want)
}

// Between checks that least <= got <= most.
func Between[T cmp.Ordered](t testing.TB, got, least, most T, format string, args ...any) {
	if got < least || got > most {
		t.Helper()
		t.Errorf("%s, want %v to %v", fmt.Sprintf(format, append([]any{got}, args...)...), least, most)
	}
}

// AtMost checks that got <= most.
func AtMost[T cmp.Ordered](t testing.TB, got, most T, format string, args ...any) {
	if got > most {
		t.Helper()
		t.Errorf("%s, want at most %v", fmt.Sprintf(format, append([]any{got}, args...)...), most)
	}
}

// AtLeast checks that got is not below least.
func AtLeast[T cmp.Ordered](t testing.TB, got, least T, format string, args ...any) {
	if got < least {
		t.Helper()
		t.Errorf("%s, want at least %v", fmt.Sprintf(format, append([]any{got}, args...)...), least)
	}
}

// True checks that ok holds. The error is format with args.
func True(t testing.TB, ok bool, format string, args ...any) {
	if !ok {
		t.Helper()
		t.Errorf(format, args...)
	}
}

// MustTrue is True, and ends the test.
func MustTrue(t testing.TB, ok bool, format string, args ...any) {
	if !ok {
		t.Helper()
		t.Fatalf(format, args...)
	}
}

// ErrorIs checks that got is want, or wraps it.
func ErrorIs(t testing.TB, got, want error, format string, args ...any) {
	if !errors.Is(got, want) {
		t.Helper()
		t.Error(unequal(got, want, format, args))
	}
}

// NoError checks that err is nil. Its type may be a pointer too, whose nil is no nil error.
func NoError[E comparable](t testing.TB, err E) {
	var none E
	if err != none {
		t.Helper()
		t.Fatal(err)
	}
}
