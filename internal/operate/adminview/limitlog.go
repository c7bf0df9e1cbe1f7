package adminview

import (
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/request/proxy"
)

// limitEvery is the shortest time between two log lines about the same limit.
const limitEvery = time.Minute

// limitLog logs when a limit of the whole service is reached: at once, and then at most once a minute
// while requests reach it. The line names the setting, even if the access log is off.
type limitLog struct {
	limits []limitCount // in the order of proxy.Limits; nil before the first look
}

type limitCount struct {
	counted uint64    // LimitState.Reached when the last line was logged
	at      time.Time // when the last line was logged
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
