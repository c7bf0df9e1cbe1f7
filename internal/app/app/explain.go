package app

import (
	"net/netip"
	"slices"

	"go.uber.org/zap"

	"adbuffer/internal/operate/adminview"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
)

// Explain says how cfg would handle message: one HTTP/1.1 request from a client at peer. It opens
// no listener and no connection.
func Explain(cfg *config.Config, message []byte, peer netip.Addr) (*adminview.Explained, error) {
	quiet := *cfg
	quiet.Tracing, quiet.Fleet = config.Tracing{}, config.Fleet{}
	quiet.SSPs = slices.Clone(cfg.SSPs)
	for i := range quiet.SSPs {
		quiet.SSPs[i].Pool.MinIdle = 0
		quiet.SSPs[i].HealthCheck.Path = ""
		quiet.SSPs[i].QPS.Scope = config.ScopeInstance
	}
	a, err := newApp(&quiet, zap.NewNop(), Process{})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	return a.explain(message, peer), nil
}

// explain says how the current config version would handle message.
func (a *App) explain(message []byte, peer netip.Addr) (x *adminview.Explained) {
	a.versions.Look(func(current *reload.Version) { x = a.views.Explain(a.proxy, current, message, peer) })
	return x
}
