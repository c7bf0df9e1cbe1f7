package logs

import (
	"bytes"

	"go.uber.org/zap/zapcore"
)

var jsonEncoder = zapcore.NewJSONEncoder(zapcore.EncoderConfig{TimeKey: "time", EncodeTime: zapcore.RFC3339NanoTimeEncoder, SkipLineEnding: true})

// MarshalJSON implements json.Marshaler. The object has the time and the fields of the access log.
func (r *Record) MarshalJSON() ([]byte, error) {
	b, err := jsonEncoder.EncodeEntry(zapcore.Entry{Time: r.At}, r.Fields())
	if err != nil {
		return nil, err
	}
	defer b.Free()
	return bytes.Clone(b.Bytes()), nil
}
