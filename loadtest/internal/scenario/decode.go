package scenario

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Rate is a number of requests per second. In YAML it has a unit: 500/s, 1.5k/s, 90/m.
type Rate float64

// UnmarshalYAML parses a rate with its unit.
func (r *Rate) UnmarshalYAML(n *yaml.Node) error {
	fault := func(format string, args ...any) error {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: ", n.Line) + fmt.Sprintf(format, args...)}}
	}
	number, unit, found := strings.Cut(n.Value, "/")
	if n.Kind != yaml.ScalarNode || !found {
		return fault(`%q has no unit; write for example "500/s"`, n.Value)
	}
	per, ok := map[string]float64{"s": 1, "m": 60, "h": 3600}[strings.TrimSpace(unit)]
	if !ok {
		return fault(`%q: the unit must be /s, /m or /h`, n.Value)
	}
	number, thousands := strings.CutSuffix(strings.TrimSpace(number), "k")
	v, err := strconv.ParseFloat(number, 64)
	if thousands {
		v *= 1000
	}
	switch {
	case err != nil:
		return fault("%q is no number with a unit", n.Value)
	case !(v >= 0 && v/per <= 10e6):
		return fault("%q: must be 0/s to 10000k/s", n.Value)
	}
	*r = Rate(v / per)
	return nil
}

var (
	lineOf   = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)
	unknown  = regexp.MustCompile(`field (\S+) not found in type \S+`)
	mismatch = regexp.MustCompile("cannot unmarshal (?:!!\\w+ )?`?(.*?)`? into (\\S+)")
)

// decodeFaults returns the faults in the error of the YAML parser.
func decodeFaults(err error) (out Faults) {
	if err == nil {
		return nil
	}
	texts := []string{err.Error()}
	var types *yaml.TypeError
	if errors.As(err, &types) {
		texts = types.Errors
	}
	for _, text := range texts {
		f := Fault{Path: "scenario"}
		if m := lineOf.FindStringSubmatch(text); m != nil {
			f.Line, _ = strconv.Atoi(m[1]) // the expression matches only digits
			text = text[len(m[0]):]
		}
		text = unknown.ReplaceAllString(text, "unknown key $1")
		f.Rule = strings.Replace(mismatch.ReplaceAllString(text, "$1 is no $2"), "time.Duration", `duration with a unit, such as "80ms"`, 1)
		out = append(out, f)
	}
	return out
}
