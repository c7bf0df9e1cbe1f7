package reload

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"adbuffer/internal/config"
)

// Change is one setting that differs between two configurations.
type Change struct {
	// Path names SSPs and routes: "ssps[openx].pool.max_conns".
	Path string `json:"path"`
	// Old and New are as the effective configuration shows them, with secrets
	// hidden; empty where the setting, SSP or route is not there.
	Old    string `json:"old"`
	New    string `json:"new"`
	Effect Effect `json:"effect"`
}

// String is one line: path, both values, effect.
func (c Change) String() string {
	return fmt.Sprintf("%s: %s -> %s (%s)", c.Path, orNone(c.Old), orNone(c.New), c.Effect)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// Compare lists what differs between the configuration in force and the one to
// come, and what a reload does about it, in the order of the file. It knows
// settings only: what is in files that they name is not compared, but for the
// token of admin.token_file.
func Compare(old, next *config.Config) []Change {
	changes, err := CompareYAML(old.YAMLWithSecrets(), next.YAMLWithSecrets())
	if err != nil {
		panic(fmt.Sprintf("BUG: an effective configuration cannot be read: %v", err))
	}
	if !old.Admin.Token.Equal(next.Admin.Token) && old.Admin.TokenFile == next.Admin.TokenFile {
		changes = append(changes, contentChange("admin.token_file", next.Admin.TokenFile))
	}
	return changes
}

// contentChange is that of a file whose name stays.
func contentChange(path, file string) Change {
	return Change{Path: path, Old: file, New: file + ", with another content", Effect: effectOf(path)}
}

// CompareYAML is Compare for effective configurations as YAML: the way check
// prints them, and GET /config on the admin listener shows them. A secret that
// is hidden in the old one passes for unchanged.
func CompareYAML(old, next []byte) ([]Change, error) {
	before, err := settingsOf(old)
	if err != nil {
		return nil, err
	}
	after, err := settingsOf(next)
	if err != nil {
		return nil, err
	}
	changes := []Change{}
	for _, s := range after.list {
		was, known := before.byPath[s.path]
		switch {
		case !known:
			if !after.newMember(s.path, before) {
				changes = append(changes, Change{Path: s.path, New: s.shown, Effect: effectOf(s.path)})
			}
		case was.raw == s.raw, was.shown == s.shown && strings.Contains(was.raw, config.Hidden):
		default:
			c := Change{Path: s.path, Old: was.shown, New: s.shown, Effect: changeEffect(s.path, was, s)}
			if c.Old == c.New {
				c.New += ", but another secret"
			}
			changes = append(changes, c)
		}
	}
	for _, s := range before.list {
		if _, known := after.byPath[s.path]; !known && !before.newMember(s.path, after) {
			changes = append(changes, Change{Path: s.path, Old: s.shown, Effect: removedEffect(s.path)})
		}
	}
	return changes, nil
}

// settings are the leaves of a configuration, and its SSPs and routes, in order.
type settings struct {
	list   []setting
	byPath map[string]setting
}

type setting struct {
	path       string
	raw, shown string   // shown hides secrets
	values     []string // of a list of scalars
}

func settingsOf(doc []byte) (*settings, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(doc, &root); err != nil {
		return nil, err
	}
	s := &settings{byPath: make(map[string]setting)}
	if len(root.Content) == 1 && root.Content[0].Kind == yaml.MappingNode {
		s.section("", root.Content[0])
	}
	return s, nil
}

// add takes a setting in; of those that are there twice, which no effective
// configuration has, the first counts.
func (s *settings) add(leaf setting) {
	if _, twice := s.byPath[leaf.path]; twice {
		return
	}
	s.list = append(s.list, leaf)
	s.byPath[leaf.path] = leaf
}

func (s *settings) section(path string, node *yaml.Node) {
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

// members are SSPs or routes. A member is a setting too, whose value says what it
// is about; so is the order of the routes, of which the first that matches wins.
func (s *settings) members(path string, list *yaml.Node) {
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
		// Only whether it is there counts: what it is about are settings below.
		s.add(setting{path: at, shown: about.shown})
		s.section(at, member)
	}
	if path == "routes" {
		s.add(setting{path: path, raw: strings.Join(names, ", "), shown: strings.Join(names, ", ")})
	}
}

// newMember reports whether path lies within an SSP or a route that other lacks:
// the member itself is the change then.
func (s *settings) newMember(path string, other *settings) bool {
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
func leafOf(path string, node *yaml.Node) setting {
	s := setting{path: path, raw: flow(node, asIs), shown: flow(node, hiding(path))}
	if node.Kind == yaml.SequenceNode {
		for _, item := range node.Content {
			s.values = append(s.values, item.Value)
		}
	}
	return s
}

// shower returns how the value of a setting is shown, given the name that stands
// beside it, if there is one.
type shower func(name, value string) string

func asIs(_, value string) string { return value }

// hiding returns how values at path are shown without what may be a secret: as
// config.Config.YAML shows them.
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

// flow writes a value in one line. show shows a scalar, those of a list, and the
// one called value of a mapping; the name beside that one is passed to it.
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
			}
			parts = append(parts, key+": "+shown)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	default:
		return show("", node.Value)
	}
}
