package config

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
)

// Load reads the file at path and lays the variables of env over it. Relative
// paths in the file are relative to the working directory. The error is Faults
// unless the file cannot be read.
func Load(path string, env Env) (*Config, []Warning, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("config: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, nil, fmt.Errorf("config: %w", err)
	}
	return Parse(data, env)
}

// Parse is Load for a file's content. The error is Faults.
func Parse(data []byte, env Env) (*Config, []Warning, error) {
	if env == nil {
		env = func(string) (string, bool) { return "", false }
	}
	r := newReport()
	root := reflect.TypeFor[document]()
	tree, ok := reader{r}.read(data, root)
	if !ok {
		return nil, nil, r.err()
	}
	if tree == nil {
		tree = map[string]any{}
	}
	overrides{r, env}.section(tree, root, envPrefix, "")
	doc := decode(tree, r)
	cfg := &doc.Config
	for i := range cfg.Routes {
		match := &cfg.Routes[i].Match
		match.Host = strings.ToLower(match.Host)
	}
	validate(doc, r)
	if err := r.err(); err != nil {
		return nil, nil, err
	}
	return cfg, warnings(cfg, thisMachine()), nil
}
