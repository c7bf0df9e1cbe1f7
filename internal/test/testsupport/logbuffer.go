package testsupport

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
)

// LogBuffer holds the standard error of a process.
type LogBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *LogBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns all text so far.
func (l *LogBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Line returns the fields of the first line with this message.
func (l *LogBuffer) Line(message string) (fields map[string]any, ok bool) {
	if all := l.Lines(message); len(all) > 0 {
		return all[0], true
	}
	return nil, false
}

// Lines returns the fields of all lines with this message.
func (l *LogBuffer) Lines(message string) (all []map[string]any) {
	for text := range strings.Lines(l.String()) {
		var f map[string]any
		if strings.HasSuffix(text, "\n") && json.Unmarshal([]byte(text), &f) == nil && f["msg"] == message {
			all = append(all, f)
		}
	}
	return all
}
