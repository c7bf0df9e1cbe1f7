package adminview

import (
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/request/proxy"
)

// limitEvery is how often the log says that a limit of the service is reached, while it is.
const limitEvery = time.Minute

// limitLog logs that limits of the whole service are reached: at once, and then once a minute. So the log
// names the setting without the access log.
type limitLog struct {
	limits []limitCount // in the order of proxy.Limits; nil before the first look
}

type limitCount struct {
	counted uint64    // LimitState.Reached at the last line
	at      time.Time // of the last line
}

func (l *limitLog) look(log *zap.Logger, now time.Time, all []proxy.LimitState) {
	if l.limits == nil {
		l.limits = make([]limitCount, len(all))
	}
	for i, s := range all {
		last := &l.limits[i]
		n := s.Reached - last.counted
		if n == 0 || now.Sub(last.at) < limitEvery {
			continue
		}
		*last = limitCount{s.Reached, now}
		log.Warn("a limit of the service was reached", zap.String("see", s.Setting), zap.String("effect", s.Effect), zap.Uint64("times", n),
			zap.Int64("used", s.Used), zap.Int64("limit", s.Limit))
	}
}
