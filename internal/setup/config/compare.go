package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"adbuffer/internal/wire/exchange"
)

// Effect is what a reload does about a setting that changed. The tag reload of a key has it.
type Effect string

// The effects.
const (
	// InPlace: the setting holds from the next request on. Pools, sockets, counters
	// and learned state stay.
	InPlace Effect = "in place"
	// NewConnections: in place too, but an open connection keeps the setting that it
	// was opened with. So open connections are replaced within seconds.
	NewConnections Effect = "new connections"
	// NewPool: the SSP gets a new pool, and the old one drains.
	NewPool Effect = "new pool"
	// PoolDrains: the SSP is removed, and its pool drains. No tag has this effect.
	PoolDrains Effect = "pool drains"
	// Restart: a running process cannot change the setting. A reload refuses the
	// whole configuration. A key whose effect no tag states needs a restart.
	Restart Effect = "restart"
)

// Change is one setting that differs between two configurations.
type Change struct {
	// Path names SSPs and routes: "ssps[openx].pool.max_conns".
	Path string `json:"path"`
	// Old and New are as the effective configuration shows them, with secrets
	// hidden; "" = the setting, SSP or route is absent.
	Old    string `json:"old"`
	New    string `json:"new"`
	Effect Effect `json:"effect"`
}

// String is one line: path, both values, effect.
func (c Change) String() string {
	return fmt.Sprintf("%s: %s -> %s (%s)", c.Path, cmp.Or(c.Old, "none"), cmp.Or(c.New, "none"), c.Effect)
}

// ContentChange is the change of a file that keeps its name.
func ContentChange(path, file string, e Effect) Change {
	return Change{Path: path, Old: file, New: file + ", with another content", Effect: e}
}

// Compare lists the changes from the current configuration to the next one, in the order of the
// file. It compares settings, not the content of files. Only the token and the password of Redis are
// part of the configuration.
func Compare(old, next *Config) []Change {
	c := comparison{}
	c.sections(reflect.ValueOf(old).Elem(), reflect.ValueOf(next).Elem(), "", Restart)
	if !old.Admin.Token.Equal(next.Admin.Token) && old.Admin.TokenFile == next.Admin.TokenFile {
		c = append(c, ContentChange("admin.token_file", next.Admin.TokenFile, InPlace))
	}
	if was, is := &old.Fleet.Redis, &next.Fleet.Redis; !was.Password.Equal(is.Password) && was.PasswordFile == is.PasswordFile {
		c = append(c, ContentChange("fleet.redis.password_file", is.PasswordFile, InPlace))
	}
	return c
}

// comparison collects changes.
type comparison []Change

// sections compares two sections of one type. around is the effect of the section itself.
func (c *comparison) sections(was, is reflect.Value, path string, around Effect) {
	for _, k := range keysOf(was.Type()) {
		p, effect := join(path, k.name), cmp.Or(k.effect, around)
		switch before, after := was.FieldByIndex(k.index), is.FieldByIndex(k.index); {
		case isSection(k.typ):
			c.sections(before, after, p, effect)
		case p == "ssps":
			c.members(before, after, members{path: p, about: "endpoints", inside: effect, added: NewPool, removed: PoolDrains})
		case p == "routes":
			c.members(before, after, members{path: p, about: "match", inside: effect, added: effect, removed: effect})
			c.add(p, names(before), names(after), effect) // the first route that matches wins
		default:
			c.settings(was, is, k, p, effect)
		}
	}
}

// settings compares one key of two sections.
func (c *comparison) settings(was, is reflect.Value, k key, path string, effect Effect) {
	if inOneLine(keyNode(was, k, false)) == inOneLine(keyNode(is, k, false)) {
		return
	}
	old, next := inOneLine(keyNode(was, k, true)), inOneLine(keyNode(is, k, true))
	if old == next {
		next += ", but another secret"
	}
	if before, ok := was.Addr().Interface().(*SSP); ok && k.name == "endpoints" && keepsEndpoint(before, is.Addr().Interface().(*SSP)) {
		effect = InPlace
	}
	c.add(path, old, next, effect)
}

func (c *comparison) add(path, old, next string, effect Effect) {
	if old != next {
		*c = append(*c, Change{Path: path, Old: old, New: next, Effect: effect})
	}
}

// keepsEndpoint reports whether an SSP keeps a host and port, with the same scheme. Then the pool
// stays, with that endpoint's connections. Otherwise a new pool opens connections before the old
// one drains.
func keepsEndpoint(was, is *SSP) bool {
	return was.Parsed.Scheme == is.Parsed.Scheme &&
		slices.ContainsFunc(is.Parsed.All, func(e exchange.Endpoint) bool { return slices.Contains(was.Parsed.All, e) })
}

// members says how SSPs or routes are compared.
type members struct {
	path           string
	about          string // the key that stands for a whole member
	inside         Effect // of a member's keys without a tag
	added, removed Effect // of whole members
}

// members compares lists of SSPs or routes by the members' names.
func (c *comparison) members(was, is reflect.Value, m members) {
	path := func(member reflect.Value) string { return m.path + "[" + nameOf(member) + "]" }
	about := func(member reflect.Value) string { return inOneLine(nodeOf(sibling(member, m.about), true)) }
	for i := range is.Len() {
		member := is.Index(i)
		if before, known := memberOf(was, nameOf(member)); known {
			c.sections(before, member, path(member), m.inside)
		} else {
			c.add(path(member), "", about(member), m.added)
		}
	}
	for i := range was.Len() {
		if _, known := memberOf(is, nameOf(was.Index(i))); !known {
			c.add(path(was.Index(i)), about(was.Index(i)), "", m.removed)
		}
	}
}

func nameOf(member reflect.Value) string { return sibling(member, "name").String() }

func memberOf(list reflect.Value, name string) (member reflect.Value, ok bool) {
	for i := range list.Len() {
		if nameOf(list.Index(i)) == name {
			return list.Index(i), true
		}
	}
	return reflect.Value{}, false
}

func names(list reflect.Value) string {
	all := make([]string, list.Len())
	for i := range all {
		all[i] = nameOf(list.Index(i))
	}
	return strings.Join(all, ", ")
}

// inOneLine writes a value of the effective configuration without quotes.
func inOneLine(node *yaml.Node) string {
	var parts []string
	switch node.Kind {
	case yaml.SequenceNode:
		for _, element := range node.Content {
			parts = append(parts, inOneLine(element))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			parts = append(parts, node.Content[i].Value+": "+inOneLine(node.Content[i+1]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	default:
		return node.Value
	}
}
