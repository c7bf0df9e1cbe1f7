package reload

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"adbuffer/internal/config"
)

// leaves are the settings of a configuration, one by one, in order. Each SSP and
// each route is a leaf too.
type leaves struct {
	list   []leaf
	byPath map[string]leaf
}

type leaf struct {
	path       string
	raw, shown string   // in one line; shown hides secrets
	values     []string // of a list of scalars
}

// flatten reads an effective configuration.
func flatten(doc []byte) (*leaves, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(doc, &root); err != nil {
		return nil, err
	}
	s := &leaves{byPath: make(map[string]leaf)}
	if len(root.Content) == 1 && root.Content[0].Kind == yaml.MappingNode {
		s.section("", root.Content[0])
	}
	return s, nil
}

// add ignores a path that it already has. No effective configuration has a path twice.
func (s *leaves) add(l leaf) {
	if _, twice := s.byPath[l.path]; twice {
		return
	}
	s.list = append(s.list, l)
	s.byPath[l.path] = l
}

func (s *leaves) section(path string, node *yaml.Node) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i].Value, node.Content[i+1]
		at := strings.TrimPrefix(path+"."+key, ".")
		switch {
		case value.Kind == yaml.MappingNode:
			s.section(at, value)
		case path == "" && (key == "ssps" || key == "routes"):
			s.members(at, value)
		default:
			s.add(leafOf(at, value))
		}
	}
}

// members adds SSPs or routes. The value of a member's own leaf is its endpoints or
// conditions. The order of the routes is a leaf too, because the first
// route that matches wins.
func (s *leaves) members(path string, list *yaml.Node) {
	var names []string
	for _, member := range list.Content {
		name := fieldOf(member, "name")
		if name == nil {
			continue
		}
		names = append(names, name.Value)
		at := path + "[" + name.Value + "]"
		about := leafOf(at, name)
		if e := fieldOf(member, "endpoints"); e != nil {
			about = leafOf(path+"[].endpoints", e)
		} else if m := fieldOf(member, "match"); m != nil {
			about = leafOf(at, m)
		}
		// raw is empty: the leaves below show whether endpoints or conditions changed.
		s.add(leaf{path: at, shown: about.shown})
		s.section(at, member)
	}
	if path == "routes" {
		s.add(leaf{path: path, raw: strings.Join(names, ", "), shown: strings.Join(names, ", ")})
	}
}

// inNewMember reports whether path is in an SSP or a route that other lacks. Then the
// SSP or route itself is the change.
func (s *leaves) inNewMember(path string, other *leaves) bool {
	i := strings.Index(path, "].")
	if i < 0 {
		return false
	}
	_, known := other.byPath[path[:i+1]]
	return !known
}

func fieldOf(node *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i+1]
		}
	}
	return nil
}

// leafOf renders a scalar or a list in one line.
func leafOf(path string, node *yaml.Node) leaf {
	s := leaf{path: path, raw: flow(node, asIs), shown: flow(node, hiding(path))}
	if node.Kind == yaml.SequenceNode {
		for _, item := range node.Content {
			if u := fieldOf(item, "url"); u != nil {
				item = u
			}
			s.values = append(s.values, item.Value)
		}
	}
	return s
}

// shower returns a value in the form in which it is shown. name is the value of the key name beside
// it, or "".
type shower func(name, value string) string

func asIs(_, value string) string { return value }

// hiding returns the shower for path that hides secrets as config.Config.YAML does.
func hiding(path string) shower {
	switch setting := anyMember(path); {
	case setting == "ssps[].endpoints" || setting == "tracing.endpoint":
		return func(_, value string) string { return config.HideURL(value) }
	case setting == "ssps[].headers.set":
		return config.HideField
	case setting == "routes[]" || strings.HasPrefix(setting, "routes[].match."):
		return func(name, value string) string {
			if value != "" && config.NamesSecret(name) {
				return config.Hidden
			}
			return value
		}
	}
	return asIs
}

// flow writes a value in one line. It applies show to scalars, to elements of lists, and to the key
// value of a mapping.
func flow(node *yaml.Node, show shower) string {
	var parts []string
	switch node.Kind {
	case yaml.SequenceNode:
		for _, item := range node.Content {
			parts = append(parts, flow(item, show))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case yaml.MappingNode:
		name := fieldOf(node, "name")
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i].Value, node.Content[i+1]
			shown := value.Value
			switch {
			case value.Kind != yaml.ScalarNode:
				shown = flow(value, show)
			case key == "value" && name != nil:
				shown = show(name.Value, value.Value)
			case key == "url":
				shown = show("", value.Value)
			}
			parts = append(parts, key+": "+shown)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	default:
		return show("", node.Value)
	}
}
