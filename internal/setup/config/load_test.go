package config

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

// compareUnexported lets cmp compare prefixes, and leaves out what a table of routes adds to conditions. All
// other parts of a Config are exported or, like Secret, have Equal.
var compareUnexported = cmp.Options{cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmpopts.IgnoreUnexported(route.Condition{})}

func mustParse(t *testing.T, text string) *Config {
	t.Helper()
	return mustParseEnv(t, text, nil)
}

func mustParseEnv(t *testing.T, text string, vars map[string]string) *Config {
	t.Helper()
	cfg, _, err := Parse([]byte(text), vars)
	testsupport.MustTrue(t, err == nil, "%s\n%v", text, err)
	return cfg
}

func mustLoad(t *testing.T, path string) *Config {
	t.Helper()
	cfg, _, err := Load(path, nil)
	testsupport.MustTrue(t, err == nil, "%s\n%v", path, err)
	return cfg
}
