package admin

import (
	"encoding/json"
	"net/http"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// maxLevelBytes bounds the body of PUT /log/level.
const maxLevelBytes = 256

type levelView struct {
	Level string `json:"level"`
}

func (s *Server) showLevel(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, levelView{s.opts.Level.String()})
}

// changeLevel takes a level as {"level":"debug"} or as the word alone. The response is the
// level in force. It lasts until the next start, or a reload that changes log.level.
func (s *Server) changeLevel(w http.ResponseWriter, r *http.Request) {
	body, ok := readBody(w, r, maxLevelBytes, "the level is a word of a few letters")
	if !ok {
		return
	}
	word := strings.TrimSpace(string(body))
	if strings.HasPrefix(word, "{") {
		var v levelView
		if json.Unmarshal(body, &v) != nil {
			text(w, http.StatusBadRequest, `send {"level":"debug"}, or the word alone`)
			return
		}
		word = v.Level
	}
	level, ok := map[string]zapcore.Level{
		"debug": zapcore.DebugLevel, "info": zapcore.InfoLevel, "warn": zapcore.WarnLevel, "error": zapcore.ErrorLevel,
	}[word]
	if !ok {
		text(w, http.StatusBadRequest, "the level must be debug, info, warn or error, as for log.level")
		return
	}
	before := s.opts.Level.Level()
	// The line is written at the more verbose of both levels.
	s.opts.Level.SetLevel(min(before, level))
	s.opts.Log.Warn("log level changed on the admin listener", zap.Stringer("before", before), zap.Stringer("now", level), zap.String("by", r.RemoteAddr))
	s.opts.Level.SetLevel(level)
	s.showLevel(w, r)
}
