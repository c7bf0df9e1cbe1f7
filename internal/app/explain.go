package app

import (
	"net/netip"
	"slices"

	"go.uber.org/zap"

	"adbuffer/internal/adminview"
	"adbuffer/internal/config"
	"adbuffer/internal/reload"
)

// Explain says what cfg would do with message: one request of HTTP/1.1 from a client at peer. It
// listens nowhere and connects nowhere.
func Explain(cfg *config.Config, message []byte, peer netip.Addr) (*adminview.Explained, error) {
	quiet := *cfg
	quiet.Tracing, quiet.Fleet = config.Tracing{}, config.Fleet{}
	quiet.SSPs = slices.Clone(cfg.SSPs)
	for i := range quiet.SSPs {
		quiet.SSPs[i].Pool.MinIdle = 0
		quiet.SSPs[i].QPS.Scope = config.ScopeInstance
	}
	a, err := build(&quiet, zap.NewNop())
	if err != nil {
		return nil, err
	}
	defer a.Close()
	return a.explain(message, peer), nil
}

// explain says what the config version in force would do with message.
func (a *App) explain(message []byte, peer netip.Addr) (x *adminview.Explained) {
	a.versions.Look(func(current *reload.Version) { x = adminview.Explain(a.proxy, current, message, peer) })
	return x
}
