package sizing

import (
	"errors"
	"fmt"

	"adbuffer/internal/config"
)

// Apply returns the text of a configuration with the pools of the plan, and both configurations. A plan
// from measurements makes no pool smaller. The new text is valid and has all values of the plan.
func (plan Plan) Apply(text []byte, env config.Env) (edited []byte, old, next *config.Config, err error) {
	old, _, err = config.Parse(text, env)
	if err != nil {
		return nil, nil, nil, err
	}
	edited = text
	known := 0
	for i := range plan {
		p := &plan[i]
		at := indexOf(old, p.name)
		if at < 0 {
			continue
		}
		known++
		for _, s := range p.settings() {
			now, isSize := valueOf(&old.SSPs[at].Pool, s.key)
			if now == s.value || isSize && p.measured && now > s.value {
				continue
			}
			edited, err = config.SetPool(edited, p.name, s.key, s.value)
			if err != nil {
				return nil, nil, nil, err
			}
		}
	}
	if known == 0 {
		return nil, nil, nil, errors.New("it has none of the plan's SSPs")
	}
	next, _, err = config.Parse(edited, env)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("with the plan it would not be valid:\n%w", err)
	}
	for i := range plan {
		at := indexOf(next, plan[i].name)
		for _, s := range plan[i].settings() {
			if at < 0 {
				continue
			}
			now, isSize := valueOf(&next.SSPs[at].Pool, s.key)
			isLarger := isSize && plan[i].measured && now > s.value
			if now != s.value && !isLarger {
				return nil, nil, nil, fmt.Errorf("pool.%s of %s stays %d: a variable sets it", s.key, plan[i].name, now)
			}
		}
	}
	return edited, old, next, nil
}

func indexOf(cfg *config.Config, ssp string) int {
	for i := range cfg.SSPs {
		if cfg.SSPs[i].Name == ssp {
			return i
		}
	}
	return -1
}

// valueOf returns the value of a key of settings. isSize is true for the number of connections.
func valueOf(p *config.Pool, key string) (value int, isSize bool) {
	switch key {
	case "max_conns":
		return p.MaxConns, true
	case "max_http2_conns":
		return p.MaxHTTP2Conns, true
	case "max_streams_per_conn":
		return p.MaxStreamsPerConn, false
	default:
		return p.PipelineDepth, false
	}
}
