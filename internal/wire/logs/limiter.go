package logs

import (
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// PerSecond is how many lines with the same level and message a logger writes in a second.
const PerSecond = 10

// maxNamed is how many suppressed messages a log line names.
const maxNamed = 10

// Limiter creates loggers that write at most PerSecond lines of each message in a second, and suppress further lines.
// It counts the suppressed lines, and logs their number once a second. The limit applies to equal messages, so a
// peer's text must be in a field and not in the message.
type Limiter struct {
	to *zap.Logger

	mu         sync.Mutex // guards the fields below
	total      uint64
	unreported uint64   // suppressed lines since the last call of report
	messages   []string // the different messages of these lines, at most maxNamed
}

// NewLimiter returns a Limiter whose loggers write to log.
func NewLimiter(log *zap.Logger) *Limiter { return &Limiter{to: log} }

// Logger returns a new logger, whose limit is independent of other loggers.
func (l *Limiter) Logger() *zap.Logger {
	if !l.to.Core().Enabled(zapcore.FatalLevel) {
		return l.to // writes nothing: the counters of a limit, 0.5 MB, would never count
	}
	return l.to.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, PerSecond, 0, zapcore.SamplerHook(l.onDecision))
	}))
}

// Suppressed returns how many lines were not written.
func (l *Limiter) Suppressed() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// onDecision is the sampler's hook. It counts each suppressed line.
func (l *Limiter) onDecision(line zapcore.Entry, d zapcore.SamplingDecision) {
	if d&zapcore.LogDropped != 0 {
		l.suppress(line.Message)
	}
}

// suppress counts a suppressed line with this message, and ensures that it is reported within a second.
func (l *Limiter) suppress(message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total++
	l.unreported++
	if l.unreported == 1 {
		time.AfterFunc(time.Second, l.report)
	}
	if len(l.messages) < maxNamed && !slices.Contains(l.messages, message) {
		l.messages = append(l.messages, message)
	}
}

func (l *Limiter) report() {
	l.mu.Lock()
	n, messages := l.unreported, l.messages
	l.unreported, l.messages = 0, nil
	l.mu.Unlock()
	l.to.Warn("log lines were suppressed; see adbuffer_log_dropped_total", zap.Uint64("lines", n), zap.Strings("messages", messages))
}
