package reload

import "go.uber.org/zap"

// maxLoggedChanges is of one reload. A change of ssp_defaults is one of every SSP.
const maxLoggedChanges = 100

func (r *Result) log(log *zap.Logger) {
	log.Info("configuration reloaded", zap.String("hash", r.Hash), zap.Int("changes", len(r.Changes)))
	for i, c := range r.Changes {
		if i == maxLoggedChanges {
			log.Info("more of the configuration changed", zap.Int("changes", len(r.Changes)-i))
			return
		}
		log.Info("configuration changed", zap.String("path", c.Path), zap.String("old", c.Old), zap.String("new", c.New), zap.String("effect", string(c.Effect)))
	}
}
