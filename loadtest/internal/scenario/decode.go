package scenario

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Rate is requests a second. In YAML it has a unit: 500/s, 1.5k/s, 90/m.
type Rate float64

var (
	typeDuration = reflect.TypeFor[time.Duration]()
	typeRate     = reflect.TypeFor[Rate]()
	typeNode     = reflect.TypeFor[yaml.Node]()
)

// decoder puts YAML into structs, strictly, and goes on after a fault.
type decoder struct{ faults Faults }

func (d *decoder) fault(n *yaml.Node, path, format string, args ...any) {
	d.faults = append(d.faults, Fault{Path: path, Rule: fmt.Sprintf(format, args...), Line: n.Line})
}

func (d *decoder) decode(n *yaml.Node, to reflect.Value, path string) {
	if n.Kind == yaml.AliasNode {
		d.fault(n, path, "aliases are not read; write it out")
		return
	}
	switch to.Type() {
	case typeNode:
		to.Set(reflect.ValueOf(*n))
		return
	case typeDuration:
		d.duration(n, to, path)
		return
	case typeRate:
		d.rate(n, to, path)
		return
	}
	switch to.Kind() {
	case reflect.Struct:
		d.mapping(n, to, path)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			d.fault(n, path, "must be a list")
			return
		}
		to.Set(reflect.MakeSlice(to.Type(), len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			d.decode(item, to.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	case reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		d.decode(n, to.Elem(), path)
	default:
		if n.Kind != yaml.ScalarNode {
			d.fault(n, path, "must be a single value")
			return
		}
		if err := n.Decode(to.Addr().Interface()); err != nil {
			d.fault(n, path, "%q is no %s", n.Value, map[reflect.Kind]string{reflect.Bool: "true or false", reflect.Int: "whole number",
				reflect.Uint64: "whole number", reflect.Float64: "number", reflect.String: "text"}[to.Kind()])
		}
	}
}

func (d *decoder) mapping(n *yaml.Node, to reflect.Value, path string) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.fault(n, orRoot(path), "must be a mapping of keys")
		return
	}
	fields := map[string]int{}
	var names []string
	for i := range to.NumField() {
		if name := to.Type().Field(i).Tag.Get("yaml"); name != "" {
			fields[name] = i
			names = append(names, name)
		}
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		field, known := fields[key.Value]
		switch {
		case !known:
			d.fault(key, at, "unknown key; %s", hint(key.Value, names))
		case seen[key.Value]:
			d.fault(key, at, "is there twice")
		default:
			seen[key.Value] = true
			d.decode(value, to.Field(field), at)
		}
	}
}

func orRoot(path string) string {
	if path == "" {
		return "scenario"
	}
	return path
}

func (d *decoder) duration(n *yaml.Node, to reflect.Value, path string) {
	v, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		d.fault(n, path, `%q is no duration with a unit; write for example "80ms"`, n.Value)
		return
	}
	if v < 0 {
		d.fault(n, path, "%v: must not be negative", v)
		return
	}
	to.SetInt(int64(v))
}

func (d *decoder) rate(n *yaml.Node, to reflect.Value, path string) {
	number, unit, found := strings.Cut(n.Value, "/")
	if n.Kind != yaml.ScalarNode || !found {
		d.fault(n, path, `%q has no unit; write for example "500/s"`, n.Value)
		return
	}
	per, ok := map[string]float64{"s": 1, "m": 60, "h": 3600}[strings.TrimSpace(unit)]
	if !ok {
		d.fault(n, path, `%q: the unit must be /s, /m or /h`, n.Value)
		return
	}
	number, thousands := strings.CutSuffix(strings.TrimSpace(number), "k")
	v, err := strconv.ParseFloat(number, 64)
	if thousands {
		v *= 1000
	}
	switch {
	case err != nil:
		d.fault(n, path, "%q is no number with a unit", n.Value)
	case !(v >= 0 && v/per <= 10e6):
		d.fault(n, path, "%q: must be 0/s to 10000k/s", n.Value)
	default:
		to.SetFloat(v / per)
	}
}

// hint names the known key nearest to the unknown one, or all.
func hint(unknown string, known []string) string {
	best, least := "", len(unknown)/2+1
	for _, k := range known {
		if d := distance(unknown, k); d < least {
			best, least = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "known here: " + strings.Join(known, ", ")
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
