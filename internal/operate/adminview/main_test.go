package adminview

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"

	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

func startSSP(t *testing.T) *sspsim.SSP {
	t.Helper()
	s, err := sspsim.Start(sspsim.Options{})
	testsupport.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// oneSSP is a configuration with one SSP of that name.
func oneSSP(s *sspsim.SSP, name string, settings ...string) string {
	one := append([]string{"name: " + name, fmt.Sprintf("endpoints: [%q]", s.URL())}, settings...)
	return "admin: {capture: true}\nssps: [{" + strings.Join(one, ", ") + "}]\nroutes: [{name: default, match: {path: /fillbuffer}, ssps: [" + name + "]}]\n"
}

func parse(t testing.TB, text string) *config.Config {
	t.Helper()
	cfg, _, err := config.Parse([]byte(text), nil)
	testsupport.NoError(t, err)
	return cfg
}

// versionsOf are versions that begin with a configuration. Their pools are closed at
// the end of the test.
func versionsOf(t testing.TB, text string) *reload.Versions {
	t.Helper()
	v, err := reload.New(parse(t, text), reload.Options{
		Log: zap.NewNop(), Peers: zap.NewNop(), InProgress: func() int { return 0 },
		Apply: func(*reload.Version) {}, Applied: func(*reload.Version) {},
	})
	testsupport.NoError(t, err)
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		v.Close(now)
	})
	return v
}

func replace(t *testing.T, v *reload.Versions, text string) {
	t.Helper()
	if _, err := v.Replace(parse(t, text)); err != nil {
		t.Fatal(err)
	}
}
