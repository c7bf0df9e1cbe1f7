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

func (s *Server) showLevel(*http.Request) (any, error) {
	return levelView{s.opts.Level.String()}, nil
}

// changeLevel sets the level to the request's body, {"level":"debug"} or the word alone, and responds with
// the level in force. The level lasts until the next start, or until a reload changes log.level.
func (s *Server) changeLevel(r *http.Request) (any, error) {
	body, err := readBody(r, maxLevelBytes, "the level is a word of a few letters")
	if err != nil {
		return nil, err
	}
	word := strings.TrimSpace(string(body))
	if strings.HasPrefix(word, "{") {
		var v levelView
		if json.Unmarshal(body, &v) != nil {
			return nil, badRequest(`send {"level":"debug"}, or the word alone`)
		}
		word = v.Level
	}
	level, ok := map[string]zapcore.Level{
		"debug": zapcore.DebugLevel, "info": zapcore.InfoLevel, "warn": zapcore.WarnLevel, "error": zapcore.ErrorLevel,
	}[word]
	if !ok {
		return nil, badRequest("the level must be debug, info, warn or error, as for log.level")
	}
	before := s.opts.Level.Level()
	// The change is logged at the more verbose of both levels, so that the line is written.
	s.opts.Level.SetLevel(min(before, level))
	s.opts.Log.Warn("log level changed on the admin listener", zap.Stringer("before", before), zap.Stringer("now", level), zap.String("by", r.RemoteAddr))
	s.opts.Level.SetLevel(level)
	return s.showLevel(r)
}
