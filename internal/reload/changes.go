// Package reload replaces the configuration of a running service. It reads the file again, lists
// the changes and builds the next config version. It then drains the parts of the old version that
// the next one does not use.
package reload

import (
	"fmt"
	"strings"

	"adbuffer/internal/config"
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
	return fmt.Sprintf("%s: %s -> %s (%s)", c.Path, orNone(c.Old), orNone(c.New), c.Effect)
}

// orNone returns a value of a Change as messages write it.
func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// Compare lists the changes from the current configuration to the next one, in the order of the
// file. It compares settings, not the content of files. Only the token and the password of Redis are
// part of the configuration.
func Compare(old, next *config.Config) []Change {
	changes, err := compareYAML(old.YAMLWithSecrets(), next.YAMLWithSecrets())
	if err != nil {
		panic(fmt.Sprintf("BUG: an effective configuration cannot be read: %v", err))
	}
	if !old.Admin.Token.Equal(next.Admin.Token) && old.Admin.TokenFile == next.Admin.TokenFile {
		changes = append(changes, contentChange("admin.token_file", next.Admin.TokenFile, InPlace))
	}
	if was, is := &old.Fleet.Redis, &next.Fleet.Redis; !was.Password.Equal(is.Password) && was.PasswordFile == is.PasswordFile {
		changes = append(changes, contentChange("fleet.redis.password_file", is.PasswordFile, InPlace))
	}
	return changes
}

// contentChange is the change of a file that keeps its name.
func contentChange(path, file string, e Effect) Change {
	return Change{Path: path, Old: file, New: file + ", with another content", Effect: e}
}

// compareYAML is Compare for effective configurations as YAML, as check prints them
// and GET /config of the admin listener shows them. A secret that is hidden in the
// old one counts as unchanged.
func compareYAML(old, next []byte) ([]Change, error) {
	before, err := flatten(old)
	if err != nil {
		return nil, err
	}
	after, err := flatten(next)
	if err != nil {
		return nil, err
	}
	changes := []Change{}
	for _, is := range after.list {
		was, known := before.byPath[is.path]
		switch {
		case !known:
			if !after.inNewMember(is.path, before) {
				changes = append(changes, Change{Path: is.path, New: is.shown, Effect: effectOf(is.path)})
			}
		case was.raw == is.raw, was.shown == is.shown && strings.Contains(was.raw, config.Hidden):
		default:
			c := Change{Path: is.path, Old: was.shown, New: is.shown, Effect: changeEffect(is.path, was, is)}
			if c.Old == c.New {
				c.New += ", but another secret"
			}
			changes = append(changes, c)
		}
	}
	for _, was := range before.list {
		if _, known := after.byPath[was.path]; !known && !before.inNewMember(was.path, after) {
			changes = append(changes, Change{Path: was.path, Old: was.shown, Effect: removedEffect(was.path)})
		}
	}
	return changes, nil
}
