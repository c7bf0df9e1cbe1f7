package config

import (
	"cmp"
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
	return ParseInSteps(data, env, func() {})
}

// ParseInSteps is Parse, and calls between after each of its steps, so that other work need not wait for all of them. The
// longest step takes a quarter of the time.
func ParseInSteps(data []byte, env Env, between func()) (*Config, []Warning, error) {
	r := newReport()
	root, ok := r.parseYAML(data)
	if !ok {
		return nil, nil, r.err()
	}
	between()
	vars := newVariables(env)
	tree, _ := decoder{report: r, variables: vars}.value(root, documentType, "")
	settings, ok := tree.(map[string]any)
	if !ok && r.bad[""] {
		return nil, nil, r.err()
	}
	between()
	doc := complete(settings, between)
	cfg := &doc.Config
	for i := range cfg.Routes {
		match := &cfg.Routes[i].Match
		match.Host = strings.TrimSuffix(strings.ToLower(match.Host), ".")
	}
	for i := range cfg.SSPs {
		host := &cfg.SSPs[i].Host
		*host = withoutFinalDot(*host)
	}
	between()
	validate(doc, r)
	if err := r.err(); err != nil {
		return nil, nil, err
	}
	between()
	m := thisMachine()
	cfg.Machine = m.Machine
	return cfg, slices.Concat(vars.unknown(), sharedWarnings(warnings(cfg, m, r.isSet), cfg, r)), nil
}

// complete fills in the defaults of all keys that settings lacks. It calls between after each of its steps.
func complete(settings map[string]any, between func()) *document {
	v := viper.NewWithOptions(viper.KeyDelimiter("::"))
	for _, k := range keysOf(documentType) {
		v.SetDefault(k.name, defaultOf(k))
	}
	between()
	completeLists(settings)
	between()
	err := v.MergeConfigMap(settings)
	all := v.AllSettings()
	between()
	doc := new(document)
	decoder, decoderErr := mapstructure.NewDecoder(&mapstructure.DecoderConfig{TagName: "yaml", SquashTagOption: "inline", ErrorUnused: true, Result: doc})
	if err = cmp.Or(err, decoderErr); err == nil {
		err = decoder.Decode(all)
	}
	if err != nil {
		panic(fmt.Sprintf("BUG: viper refuses checked settings: %v", err))
	}
	return doc
}
