package reload

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/zap"

	"adbuffer/internal/setup/config"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// versionsOf are versions that begin with a configuration. Their pools are closed at
// the end of the test.
func versionsOf(t *testing.T, cfg *config.Config) *Versions {
	t.Helper()
	v, err := New(cfg, Options{
		Log: zap.NewNop(), Peers: zap.NewNop(), InProgress: func() int { return 0 }, Apply: func(*Version) {}, Applied: func(*Version) {},
	})
	testsupport.NoError(t, err)
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		v.Close(now)
	})
	return v
}

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, _, err := config.Parse([]byte(text), nil)
	testsupport.MustTrue(t, err == nil, "%v in\n%s", err, text)
	return cfg
}

func TestTheDrainDoesNotWaitForAReloadThatPrewarms(t *testing.T) {
	away, err := sspsim.Start(sspsim.Options{Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{Refuse: true}}})
	testsupport.NoError(t, err)
	defer away.Close()
	v := versionsOf(t, parse(t, to("http://127.0.0.1:1/bid")))
	p, err := v.prepareReload(v.Current(), parse(t, strings.Replace(to(away.URL()), "{name: openx,", "{name: openx, pool: {min_idle: 1},", 1)))
	testsupport.NoError(t, err)
	v.BeginDrain()
	p.prewarm(v.serving)
	testsupport.True(t, !p.ssps[0].pool.Ready(), "the pool is warm, but the SSP refuses connections")
	p.ssps[0].pool.Close(v.serving)
	p.drop()
}
