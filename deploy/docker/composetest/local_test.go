package composetest

import (
	"adbuffer/internal/testsupport"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
)

// local stands in for containers: every port of every service is on loopback. A service's mounts
// are copied to a folder that stands for its root file system. Only names, ports and paths in
// commands and files are rewritten to match.
type local struct {
	t     *testing.T
	dir   string
	addrs map[string]string // by service:port as in the compose network
	names *regexp.Regexp    // a service, or the container itself, and a port
}

func newLocal(t *testing.T, p *types.Project) *local {
	t.Helper()
	services := slices.Sorted(maps.Keys(p.Services))
	return &local{t, t.TempDir(), map[string]string{}, regexp.MustCompile(`(\b(?:` + strings.Join(services, "|") + `)|\b127\.0\.0\.1)?:(\d{4,5})\b`)}
}

// addr is the address of a service's port.
func (l *local) addr(service, port string) string {
	l.t.Helper()
	key := service + ":" + port
	if l.addrs[key] == "" {
		l.addrs[key] = testsupport.FreeAddr(l.t)
	}
	return l.addrs[key]
}

// text returns a text of a service's command or files, rewritten for this machine.
func (l *local) text(s types.ServiceConfig, text string) string {
	l.t.Helper()
	text = l.names.ReplaceAllStringFunc(text, func(m string) string {
		parts := l.names.FindStringSubmatch(m)
		if service := parts[1]; service != "" && service != "127.0.0.1" {
			return l.addr(service, parts[2])
		}
		return l.addr(s.Name, parts[2])
	})
	var paths []string
	for _, v := range s.Volumes {
		paths = append(paths, v.Target, l.path(s, v.Target))
	}
	return strings.NewReplacer(paths...).Replace(text)
}

func (l *local) path(s types.ServiceConfig, path string) string {
	return filepath.Join(l.dir, s.Name, path)
}

// root makes the folder that replaces a service's root file system.
func (l *local) root(s types.ServiceConfig) string {
	l.t.Helper()
	for _, v := range s.Volumes {
		target := l.path(s, v.Target)
		if v.Type != types.VolumeTypeBind {
			l.must(os.MkdirAll(target, 0o755))
			continue
		}
		l.must(filepath.WalkDir(v.Source, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			rest, err := filepath.Rel(v.Source, path)
			l.must(err)
			text, err := os.ReadFile(path)
			l.must(err)
			file := filepath.Join(target, rest)
			l.must(os.MkdirAll(filepath.Dir(file), 0o755))
			return os.WriteFile(file, []byte(l.text(s, string(text))), 0o644)
		}))
	}
	return filepath.Join(l.dir, s.Name)
}

func (l *local) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}
