package reload

import (
	"strings"

	"adbuffer/internal/setup/config"
)

// strength orders the effects that changes to an SSP can have.
var strength = map[config.Effect]int{config.InPlace: 1, config.NewConnections: 2, config.NewPool: 3}

func stronger(a, b config.Effect) config.Effect {
	if strength[b] > strength[a] {
		return b
	}
	return a
}

// effectsBySSP returns the strongest effect of the changes to each SSP's settings.
func effectsBySSP(changes []config.Change) map[string]config.Effect {
	strongest := make(map[string]config.Effect)
	for _, c := range changes {
		rest, found := strings.CutPrefix(c.Path, "ssps[")
		if name, _, inside := strings.Cut(rest, "]."); found && inside {
			strongest[name] = stronger(strongest[name], c.Effect)
		}
	}
	return strongest
}
