package config

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"

	"adbuffer/internal/machine/configfile"
)

// Load reads the configuration in the file at path. Variables of env replace values of the file. Relative
// paths in the file are relative to the working directory. The error is of type Errors, unless the file
// itself cannot be read.
func Load(path string, env Env) (*Config, []Warning, error) {
	data, err := Read(path)
	if err != nil {
		return nil, nil, err
	}
	cfg, warnings, err := Parse(data, env)
	if list, ok := err.(Errors); ok { //nolint:errorlint // Parse wraps nothing
		err = list.In(path)
	}
	return cfg, warnings, err
}

// Read returns the content of the file at path. It stops reading one byte beyond the limit on a file's
// size, so that Parse refuses a file that is too large. It waits for the writer of a pipe, but not for a
// file that never ends, such as /proc/kmsg.
func Read(path string) ([]byte, error) {
	if info, err := configfile.Stat(path); err != nil || info.Mode().IsRegular() {
		data, err := configfile.ReadStart(path, maxFileBytes+1)
		if err != nil {
			return nil, fmt.Errorf("config: %w", err)
		}
		return data, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return data, nil
}

// Parse does what Load does, for the content of a file. Its error is of type Errors.
func Parse(data []byte, env Env) (*Config, []Warning, error) {
	r := newReport()
	root, ok := r.parseYAML(data)
	if !ok {
		return nil, nil, r.err()
	}
	vars := newVariables(env)
	tree, _ := decoder{report: r, variables: vars}.value(root, documentType, "")
	settings, ok := tree.(map[string]any)
	if !ok && r.bad[""] {
		return nil, nil, r.err()
	}
	doc := complete(settings)
	cfg := &doc.Config
	for i := range cfg.Routes {
		match := &cfg.Routes[i].Match
		match.Host = strings.TrimSuffix(strings.ToLower(match.Host), ".")
	}
	for i := range cfg.SSPs {
		host := &cfg.SSPs[i].Host
		*host = withoutFinalDot(*host)
	}
	validate(doc, r)
	if err := r.err(); err != nil {
		return nil, nil, err
	}
	m := thisMachine()
	cfg.Machine = m.Machine
	return cfg, slices.Concat(vars.unknown(), sharedWarnings(warnings(cfg, m, r.isSet), cfg, r)), nil
}

// complete fills in the defaults of all keys that settings lacks.
func complete(settings map[string]any) *document {
	v := viper.NewWithOptions(viper.KeyDelimiter("::"))
	for _, k := range keysOf(documentType) {
		v.SetDefault(k.name, defaultOf(k))
	}
	completeLists(settings)
	err := v.MergeConfigMap(settings)
	doc := new(document)
	if err == nil {
		err = v.UnmarshalExact(doc, func(c *mapstructure.DecoderConfig) {
			c.TagName, c.SquashTagOption = "yaml", "inline"
			c.WeaklyTypedInput, c.DecodeHook = false, nil // the decoder has checked the types
		})
	}
	if err != nil {
		panic(fmt.Sprintf("BUG: viper refuses checked settings: %v", err))
	}
	return doc
}
