// Package vectortest runs deploy/logs/vector.yaml on lines of adbuffer's log. The program of its
// transform runs in Vector's own VRL library, from PyPI, which has wheels for amd64 only.
package vectortest

import (
	_ "embed" // of vrl.py
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"adbuffer/internal/testsupport"

	"go.yaml.in/yaml/v3"
)

//go:embed vrl.py
var runner string

// Config is the tested part of deploy/logs/vector.yaml.
type Config struct {
	root       string
	Transforms struct {
		Parsed struct{ Source string } // a VRL program
	}
	Sinks struct {
		Loki struct{ Labels map[string]string } // label to text, or to the template "{{ field }}"
	}
}

// Load reads the configuration of the checkout at root.
func Load(t testing.TB, root string) *Config {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "deploy/logs/vector.yaml"))
	testsupport.NoError(t, err)
	c := &Config{root: root}
	testsupport.NoError(t, yaml.Unmarshal(b, c))
	return c
}

// Events runs the program on lines, and returns one event for each, as Vector sends it.
func (c *Config) Events(t testing.TB, lines string) (events []map[string]any) {
	t.Helper()
	testsupport.Needs(t, "python3-venv", "python3")
	python := strings.TrimSpace(testsupport.Output(t, exec.Command(filepath.Join(c.root, "scripts/vrl")))) // needs PyPI
	cmd := exec.Command(python, "-c", runner, c.Transforms.Parsed.Source)
	cmd.Stdin = strings.NewReader(lines)
	for line := range strings.Lines(testsupport.Output(t, cmd)) {
		var e map[string]any
		testsupport.NoError(t, json.Unmarshal([]byte(line), &e))
		events = append(events, e)
	}
	return events
}
