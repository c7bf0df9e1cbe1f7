package app

import (
	"net/netip"
	"slices"

	"go.uber.org/zap"

	"adbuffer/internal/operate/adminview"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
)

// Explainer says how a configuration would handle requests. It opens no listener and no connection.
type Explainer struct{ app *App }

// NewExplainer returns an Explainer for cfg. Call Close when it is not needed any more.
func NewExplainer(cfg *config.Config) (*Explainer, error) { return newExplainer(cfg, newVia()) }

func newExplainer(cfg *config.Config, via string) (*Explainer, error) {
	quiet := *cfg
	quiet.Tracing, quiet.Fleet = config.Tracing{}, config.Fleet{}
	quiet.SSPs = slices.Clone(cfg.SSPs)
	for i := range quiet.SSPs {
		quiet.SSPs[i].Pool.MinIdle = 0
		quiet.SSPs[i].HealthCheck.Path = ""
		quiet.SSPs[i].QPS.Scope = config.ScopeInstance
	}
	a, err := newApp(&quiet, zap.NewNop(), Process{}, via)
	if err != nil {
		return nil, err
	}
	return &Explainer{a}, nil
}

// Explain says how the configuration would handle message: one HTTP/1.1 request from a client at peer.
func (e *Explainer) Explain(message []byte, peer netip.Addr) *adminview.Explained {
	return e.app.explain(message, peer)
}

// Close releases what the Explainer has built.
func (e *Explainer) Close() { e.app.Close() }

// explain says how the current config version would handle message.
func (a *App) explain(message []byte, peer netip.Addr) (x *adminview.Explained) {
	a.versions.Look(func(current *reload.Version) { x = a.views.Explain(a.proxy, current, message, peer) })
	return x
}
