package app

import (
	"bytes"
	"os"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"adbuffer/internal/setup/config"
	"adbuffer/internal/wire/logs"
)

// NewLogger returns a logger with the configured level and format, its level, which may be changed while the
// logger is in use, and the sink through which the logger writes to w.
func NewLogger(c config.Log, w *os.File) (*zap.Logger, zap.AtomicLevel, *logs.Sink, error) {
	level, err := zap.ParseAtomicLevel(string(c.Level))
	if err != nil {
		return nil, level, nil, err
	}
	e := zap.NewProductionEncoderConfig()
	e.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	e.EncodeDuration = func(d time.Duration, to zapcore.PrimitiveArrayEncoder) { to.AppendString(rounded(d).String()) }
	e.TimeKey = "time"
	encoder := zapcore.NewJSONEncoder(e)
	encoder.AddInt("pid", os.Getpid())    // two processes may write to one log during a hand-over
	if c.Format == config.FormatConsole { // for people: time of day, and spaces in place of tabs
		e.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		e.EncodeLevel = zapcore.CapitalLevelEncoder
		e.ConsoleSeparator = " "
		encoder = zapcore.NewConsoleEncoder(e)
	}
	sink := logs.NewSink(w, func(lines uint64) []byte { return lostLines(encoder, lines) })
	return zap.New(zapcore.NewCore(encoder, sink, level)), level, sink, nil
}

// lostLines returns the log line that says how many lines were lost.
func lostLines(encoder zapcore.Encoder, lines uint64) []byte {
	b, err := encoder.EncodeEntry(zapcore.Entry{
		Level: zapcore.WarnLevel, Time: time.Now(), Message: "log lines were lost, since standard error was blocked or failed; see adbuffer_log_dropped_total",
	}, []zap.Field{zap.Uint64("lines", lines)})
	if err != nil {
		return nil
	}
	defer b.Free()
	return bytes.Clone(b.Bytes())
}

// rounded returns d with three digits, or with whole seconds if d is longer than a quarter of an hour.
func rounded(d time.Duration) time.Duration {
	unit := time.Nanosecond
	for unit < time.Second && d.Abs() >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit)
}
