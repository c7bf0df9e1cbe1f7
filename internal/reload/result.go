// Package reload replaces the configuration of a running service. It reads the file again, lists
// the changes and builds the next config version. It then drains the parts of the old version that
// the next one does not use.
package reload

import (
	"go.uber.org/zap"

	"adbuffer/internal/config"
)

// Result is the result of a reload.
type Result struct {
	Hash    string          // of the configuration in force
	Changes []config.Change // none if nothing changed
	// Warnings are about the present load. Warnings about the configuration alone are not among
	// them.
	Warnings []config.Warning
}

// maxLoggedChanges bounds the logged changes of one reload. A change of ssp_defaults is a change of
// every SSP.
const maxLoggedChanges = 100

func (r *Result) log(log *zap.Logger) {
	log.Info("configuration reloaded", zap.String("hash", r.Hash), zap.Int("changes", len(r.Changes)))
	for i, c := range r.Changes {
		if i == maxLoggedChanges {
			log.Info("further changes of the configuration are not logged", zap.Int("changes", len(r.Changes)-i))
			return
		}
		log.Info("configuration changed", zap.String("path", c.Path), zap.String("old", c.Old), zap.String("new", c.New), zap.String("effect", string(c.Effect)))
	}
}
