package admin

import (
	"encoding/json"
	"net/http"

	"go.uber.org/zap"
)

// changeSample serves PUT /sample, which empties the sample of the traffic.
func (s *Server) changeSample(r *http.Request) (any, error) {
	const rule = `send {"state":"cleared"}`
	body, err := readBody(r, maxChangeBytes, rule)
	if err != nil {
		return nil, err
	}
	var c Change
	if json.Unmarshal(body, &c) != nil || c != (Change{State: "cleared"}) {
		return nil, badRequest(rule)
	}
	s.opts.ClearSample()
	s.opts.Log.Warn("an operator cleared the sample of the traffic", zap.String("by", r.RemoteAddr))
	return c, nil
}
