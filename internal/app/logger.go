package app

import (
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"adbuffer/internal/config"
	"adbuffer/internal/logs"
)

// NewLogger returns a logger with the configuration's level and format, and the sink
// through which it writes to w. The level can be changed while the logger is in use.
func NewLogger(c config.Log, w *os.File) (*zap.Logger, zap.AtomicLevel, *logs.Sink, error) {
	level, err := zap.ParseAtomicLevel(string(c.Level))
	if err != nil {
		return nil, level, nil, err
	}
	e := zap.NewProductionEncoderConfig()
	e.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	e.EncodeDuration = zapcore.StringDurationEncoder
	e.TimeKey = "time"
	encoder := zapcore.NewJSONEncoder(e)
	if c.Format == config.FormatConsole { // a person reads it: the time of day, and spaces for tabs
		e.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		e.EncodeLevel = zapcore.CapitalLevelEncoder
		e.ConsoleSeparator = " "
		encoder = zapcore.NewConsoleEncoder(e)
	}
	sink := logs.NewSink(w)
	return zap.New(zapcore.NewCore(encoder, sink, level)), level, sink, nil
}
