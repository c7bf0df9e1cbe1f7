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

// Effect is how a reload applies a changed setting. The tag reload of a key states the key's effect.
type Effect string

// The effects.
const (
	// InPlace: the new value holds from the next request on. Pools, sockets, counters
	// and learned state stay.
	InPlace Effect = "in place"
	// NewConnections: the pool stays, but an open connection keeps the value that it
	// was opened with, so all open connections are replaced within seconds.
	NewConnections Effect = "new connections"
	// NewPool: the SSP gets a new pool, and the old one drains.
	NewPool Effect = "new pool"
	// PoolDrains: the SSP is removed, and its pool drains. No tag has this effect.
	PoolDrains Effect = "pool drains"
	// Restart: a running process cannot change the setting, so a reload refuses the
	// whole configuration. Restart is the effect of a key if neither the key nor a
	// section around it has a tag reload.
	Restart Effect = "restart"
)

// Change is one setting that differs between two configurations.
type Change struct {
	// Path names SSPs and routes: "ssps[openx].pool.max_conns".
	Path string `json:"path"`
	// Old and New are the values as the effective configuration shows them, with
	// secrets hidden; "" = the setting, SSP or route is absent.
	Old    string `json:"old"`
	New    string `json:"new"`
	Effect Effect `json:"effect"`
}

// String is one line: path, both values, effect.
func (c Change) String() string {
	return fmt.Sprintf("%s: %s -> %s (%s)", c.Path, cmp.Or(c.Old, "none"), cmp.Or(c.New, "none"), c.Effect)
}

// ContentChange describes a file whose content changed while the setting kept its name.
func ContentChange(path, file string, e Effect) Change {
	return Change{Path: path, Old: file, New: file + ", with another content", Effect: e}
}

// Compare lists the changes from the current configuration to the next one, in the order of the
// file. It compares settings, not the content of files, with two exceptions: the admin token and the
// password of Redis are read from their files into the configuration.
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

// sections compares two sections of the same type. inherited is the effect of keys without a tag reload.
func (c *comparison) sections(was, is reflect.Value, path string, inherited Effect) {
	for _, k := range keysOf(was.Type()) {
		p, effect := join(path, k.name), cmp.Or(k.effect, inherited)
		switch before, after := was.FieldByIndex(k.index), is.FieldByIndex(k.index); {
		case isSection(k.typ):
			c.sections(before, after, p, effect)
		case p == "ssps":
			c.members(before, after, members{path: p, summaryKey: "endpoints", inherited: effect, added: NewPool, removed: PoolDrains})
		case p == "routes":
			c.members(before, after, members{path: p, summaryKey: "match", inherited: effect, added: effect, removed: effect})
			c.add(p, names(before), names(after), effect) // the order matters: the first route that matches wins
		default:
			c.settings(was, is, k, p, effect)
		}
	}
}

// settings compares the values of key k in two sections.
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

// keepsEndpoint reports whether an SSP keeps its scheme and at least one endpoint. If so, the pool stays,
// with the connections to that endpoint. Otherwise the SSP gets a new pool, which opens connections
// before the old pool drains.
func keepsEndpoint(was, is *SSP) bool {
	return was.Parsed.Scheme == is.Parsed.Scheme &&
		slices.ContainsFunc(is.Parsed.All, func(e exchange.Endpoint) bool { return slices.Contains(was.Parsed.All, e) })
}

// members says how a list of SSPs or routes is compared.
type members struct {
	path           string
	summaryKey     string // the key whose value a Change shows for an added or removed member
	inherited      Effect // the effect of a member's keys without a tag reload
	added, removed Effect // the effects of adding and removing a whole member
}

// members compares lists of SSPs or routes by the members' names.
func (c *comparison) members(was, is reflect.Value, m members) {
	path := func(member reflect.Value) string { return m.path + "[" + nameOf(member) + "]" }
	summary := func(member reflect.Value) string { return inOneLine(nodeOf(sibling(member, m.summaryKey), true)) }
	for i := range is.Len() {
		member := is.Index(i)
		if before, known := memberOf(was, nameOf(member)); known {
			c.sections(before, member, path(member), m.inherited)
		} else {
			c.add(path(member), "", summary(member), m.added)
		}
	}
	for i := range was.Len() {
		if _, known := memberOf(is, nameOf(was.Index(i))); !known {
			c.add(path(was.Index(i)), summary(was.Index(i)), "", m.removed)
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
