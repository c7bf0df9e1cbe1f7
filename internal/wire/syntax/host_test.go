package syntax

import (
	"strings"
	"testing"
)

func TestIsLoopbackHost(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost": true, "localhost.": true, "127.0.0.1": true, "127.9.8.7": true, "::1": true, "[::1]": true, "::ffff:127.0.0.1": true,
		"": false, "localhost.example": false, "126.0.0.1": false, "::2": false, "0.0.0.0": false, "127.1": false, "example.com": false,
	} {
		if got := IsLoopbackHost(host); got != want {
			t.Errorf("%q: %v, want %v", host, got, want)
		}
	}
}

func TestIsHost(t *testing.T) {
	label := strings.Repeat("a", 63)
	for host, want := range map[string]bool{
		"a": true, "a.example.": true, "a_b.c-d": true, "192.0.2.1": true, "2001:db8::1": true, label + ".a": true,
		"": false, ".": false, "fe80::1%eth0": false, "-a": false, "a-": false, "a..b": false, "a b": false, label + "a.a": false,
		label + "." + label + "." + label + "." + label[:61]: true, label + "." + label + "." + label + "." + label[:62]: false,
	} {
		if got := IsHost(host); got != want {
			t.Errorf("%q: %v, want %v", host, got, want)
		}
	}
}
