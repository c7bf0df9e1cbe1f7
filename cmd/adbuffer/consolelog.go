package main

import (
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode"

	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
)

// console writes a line for eyes: time, level, message, and the fields as
// name=value in their order. Text that could be taken for something else, or
// that would move the cursor, is quoted.
//
//	15:04:05.000 INFO request route=default method=GET outcome=fill ssp=openx total=20.31ms
type console struct {
	*zapcore.MapObjectEncoder // fields of Logger.With, by name
}

var lines = buffer.NewPool()

func newConsole() console { return console{zapcore.NewMapObjectEncoder()} }

// Clone implements zapcore.Encoder.
func (c console) Clone() zapcore.Encoder {
	clone := newConsole()
	for k, v := range c.Fields {
		clone.Fields[k] = v
	}
	return clone
}

// EncodeEntry implements zapcore.Encoder.
func (c console) EncodeEntry(e zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	b := lines.Get()
	b.AppendTime(e.Time, "15:04:05.000")
	b.AppendByte(' ')
	b.AppendString(e.Level.CapitalString())
	b.AppendByte(' ')
	b.AppendString(e.Message)
	for _, k := range slices.Sorted(func(yield func(string) bool) {
		for k := range c.Fields {
			if !yield(k) {
				return
			}
		}
	}) {
		appendPair(b, k, c.Fields[k])
	}
	one := zapcore.NewMapObjectEncoder()
	for i := range fields {
		clear(one.Fields)
		fields[i].AddTo(one)
		for k, v := range one.Fields { // an error may bring a second, verbose one
			if k == fields[i].Key {
				appendPair(b, k, v)
			}
		}
	}
	b.AppendByte('\n')
	return b, nil
}

func appendPair(b *buffer.Buffer, key string, value any) {
	var text string
	switch v := value.(type) {
	case time.Duration:
		text = roughly(v).String()
	case string:
		text = v
	case []byte:
		text = string(v)
	default:
		text = fmt.Sprint(v)
	}
	b.AppendByte(' ')
	b.AppendString(key)
	b.AppendByte('=')
	if text == "" || slices.ContainsFunc([]rune(text), func(r rune) bool { return r == ' ' || r == '"' || r == '=' || !unicode.IsPrint(r) }) {
		text = strconv.Quote(text)
	}
	b.AppendString(text)
}

// roughly drops what nobody reads: all but about four digits.
func roughly(d time.Duration) time.Duration {
	for unit := time.Microsecond; unit <= time.Second; unit *= 1000 {
		if d < 1000*unit {
			return d.Round(unit / 100)
		}
	}
	return d.Round(10 * time.Millisecond)
}
