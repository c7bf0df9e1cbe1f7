package logs

import (
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// PerSecond is how many lines with the same level and message are written in a
// second.
const PerSecond = 10

// maxNamed is how many suppressed messages a log line names.
const maxNamed = 10

// Limiter creates loggers that write PerSecond lines of a message per second, and suppress further
// ones. It counts the suppressed lines, and logs their number once a second. Lines with the same
// message count together, so a peer's text must be in a field and not in the message.
type Limiter struct {
	to *zap.Logger

	mu         sync.Mutex // guards the fields below
	total      uint64
	unreported uint64   // lines since the last call of report
	messages   []string // the messages of these lines, each once
}

// NewLimiter returns a Limiter of lines to log.
func NewLimiter(log *zap.Logger) *Limiter { return &Limiter{to: log} }

// Logger returns a logger with its own limit.
func (l *Limiter) Logger() *zap.Logger {
	return l.to.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, PerSecond, 0, zapcore.SamplerHook(l.decided))
	}))
}

// Suppressed returns how many lines were not written.
func (l *Limiter) Suppressed() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// decided counts each line that is suppressed.
func (l *Limiter) decided(line zapcore.Entry, d zapcore.SamplingDecision) {
	if d&zapcore.LogDropped != 0 {
		l.suppress(line.Message)
	}
}

// suppress counts a line with this message that was not written, and makes the log report it within
// a second.
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
