package sizing

import (
	"errors"
	"fmt"
	"slices"

	"adbuffer/internal/config"
)

// Apply returns the text of a configuration with the pools of the plan, and both configurations. A plan
// from measurements makes no pool smaller. The new text is valid and has all values of the plan.
func (plan Plan) Apply(text []byte, env config.Env) (edited []byte, old, next *config.Config, err error) {
	old, _, err = config.Parse(text, env)
	if err != nil {
		return nil, nil, nil, err
	}
	known, changes := plan.differences(old)
	if known == 0 {
		return nil, nil, nil, errors.New("it has none of the plan's SSPs")
	}
	edited = text
	for _, d := range changes {
		edited, err = config.SetPool(edited, d.ssp, d.key, d.value)
		if err != nil {
			return nil, nil, nil, err
		}
	}
	next, _, err = config.Parse(edited, env)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("with the plan it would not be valid:\n%w", err)
	}
	if _, left := plan.differences(next); len(left) > 0 {
		return nil, nil, nil, fmt.Errorf("pool.%s of %s stays %d: a variable sets it", left[0].key, left[0].ssp, left[0].now)
	}
	return edited, old, next, nil
}

// difference is a setting of the plan that a configuration does not have.
type difference struct {
	ssp string
	setting
	now int
}

// differences returns the differences of cfg, and how many SSPs of the plan it has.
func (plan Plan) differences(cfg *config.Config) (known int, all []difference) {
	for i := range plan {
		p := &plan[i]
		at := slices.IndexFunc(cfg.SSPs, func(s config.SSP) bool { return s.Name == p.name })
		if at < 0 {
			continue
		}
		known++
		for _, s := range p.settings() {
			now, isSize := valueOf(&cfg.SSPs[at].Pool, s.key)
			larger := isSize && p.measured && now > s.value // it stays
			if now != s.value && !larger {
				all = append(all, difference{p.name, s, now})
			}
		}
	}
	return known, all
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
