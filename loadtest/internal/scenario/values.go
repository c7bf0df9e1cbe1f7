package scenario

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"adbuffer/internal/test/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
)

// typeErrors returns errors about the value at n, which the decoder adds to its own errors.
func typeErrors(n *yaml.Node, texts ...string) error {
	for i, text := range texts {
		texts[i] = fmt.Sprintf("line %d: %s", n.Line, text)
	}
	return &yaml.TypeError{Errors: texts}
}

// Rate is a number of requests per second. In YAML it has a unit: 500/s, 1.5k/s, 90/m.
type Rate float64

// UnmarshalYAML parses a rate with its unit.
func (r *Rate) UnmarshalYAML(n *yaml.Node) error {
	number, unit, found := strings.Cut(n.Value, "/")
	per := map[string]float64{"s": 1, "m": 60, "h": 3600}[strings.TrimSpace(unit)]
	number, thousands := strings.CutSuffix(strings.TrimSpace(number), "k")
	v, err := strconv.ParseFloat(number, 64)
	if thousands {
		v *= 1000
	}
	switch {
	case n.Kind != yaml.ScalarNode || !found || err != nil:
		return typeErrors(n, fmt.Sprintf(`%q: must be a number with a unit, such as "500/s"`, n.Value))
	case per == 0:
		return typeErrors(n, fmt.Sprintf("%q: the unit must be /s, /m or /h", n.Value))
	case !(v >= 0 && v/per <= 10e6):
		return typeErrors(n, fmt.Sprintf("%q: must be 0/s to 10000k/s", n.Value))
	}
	*r = Rate(v / per)
	return nil
}

// Behaviour is the behaviour of an SSP, or some of its keys.
type Behaviour struct {
	sspsim.Behaviour
	JSON []byte // the keys, in the syntax of the SSP's control endpoint; nil if there are none
}

// UnmarshalYAML parses a behaviour. Its keys are those of the control endpoint.
func (b *Behaviour) UnmarshalYAML(n *yaml.Node) error {
	var v any
	if err := n.Decode(&v); err != nil {
		return err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return typeErrors(n, "behaviour: must be what JSON can express: keys that are text, and finite numbers: "+err.Error())
	}
	b.JSON = text
	err = b.Behaviour.UnmarshalJSON(text)
	var invalid *sspsim.InvalidError
	switch {
	case errors.As(err, &invalid):
		return typeErrors(n, invalid.Mistakes...)
	case err != nil:
		return typeErrors(n, "behaviour: "+err.Error())
	}
	return nil
}

// fillPreset sets what a request omits to the values of its preset.
func fillPreset(r *load.Template) {
	p, known := rig.Presets()[r.Preset]
	if !known {
		p = load.Template{Name: r.Path, Method: "GET"}
	}
	r.Name, r.Method, r.Path = cmp.Or(r.Name, p.Name), cmp.Or(r.Method, p.Method), cmp.Or(r.Path, p.Path)
	if r.Headers == nil {
		r.Headers = p.Headers
	}
	if r.Body == (sspsim.Size{}) && r.Literal == "" {
		r.Body, r.JSON = p.Body, r.JSON || p.JSON
	}
}
