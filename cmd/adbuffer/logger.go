package main

import (
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"adbuffer/internal/config"
)

// newLogger writes to w, by the configuration's level and format. The level can
// be changed while the logger is in use.
func newLogger(c config.Log, w *os.File) (*zap.Logger, zap.AtomicLevel, error) {
	level, err := zap.ParseAtomicLevel(string(c.Level))
	if err != nil {
		return nil, level, err
	}
	e := zap.NewProductionEncoderConfig()
	e.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	e.EncodeDuration = zapcore.StringDurationEncoder
	e.TimeKey = "time"
	encoder := zapcore.NewJSONEncoder(e)
	if c.Format == config.FormatConsole { // for eyes: the time of day, and blanks for tabs
		e.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		e.EncodeLevel = zapcore.CapitalLevelEncoder
		e.ConsoleSeparator = " "
		encoder = zapcore.NewConsoleEncoder(e)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(w), level)), level, nil
}
